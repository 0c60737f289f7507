// What every file of the shim needs of tensors and of libraries that are opened at run time.
#pragma once

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <vector>

inline std::vector<at::Tensor> list(at::Tensor* const* tensors, int64_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (int64_t i = 0; i < count; ++i) out.push_back(*tensors[i]);
  return out;
}

template <typename Function>
Function symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  TORCH_CHECK(found != nullptr, "libtorch_cuda was not opened, or has no ", name, " (torch 2.11 is needed)");
  return reinterpret_cast<Function>(found);
}
