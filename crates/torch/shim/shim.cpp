// What tch lacks, as a C interface: fused AdamW, gradients set free, backward from any tensor, own
// autograd nodes, allocator statistics, the current stream.
//
// Every function returns 0, or 1 after it has stored a sentence for scalerl_last_error(): no C++
// exception may cross into Rust. Nothing here is linked against CUDA; libtorch_cuda is opened at
// run time where a driver is present, and everything else goes through torch's device-neutral hooks.
//
// Not here: numeric loops (fused.cpp).

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "flash.hpp"
#include "guarded.hpp"
#include "tensors.hpp"

namespace {

thread_local std::string last_error;

// Calls back into Rust with the gradient of each output (null where none came); Rust answers with one per input.
using Backward = int (*)(void* state, at::Tensor* const* grads, int64_t outputs, at::Tensor** grads_out, int64_t inputs);
using Drop = void (*)(void* state);

struct RustNode : public torch::autograd::Node {
  Backward backward = nullptr;
  Drop drop = nullptr;
  void* state = nullptr;
  int64_t inputs = 0;

  ~RustNode() override { release_variables(); }

  std::string name() const override { return "RustNode"; }

  void release_variables() override {
    if (state != nullptr) drop(state);
    state = nullptr;
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    TORCH_CHECK(state != nullptr, "this graph was already used by a backward pass");
    torch::autograd::variable_list out(inputs);
    std::vector<at::Tensor*> given;
    for (at::Tensor& grad : grads) given.push_back(grad.defined() ? &grad : nullptr);
    if (std::all_of(given.begin(), given.end(), [](const at::Tensor* grad) { return grad == nullptr; })) return out;
    std::vector<at::Tensor*> raw(inputs, nullptr);
    at::NoGradGuard no_grad;
    const int code = backward(state, given.data(), static_cast<int64_t>(given.size()), raw.data(), inputs);
    for (int64_t i = 0; i < inputs; ++i) {
      if (raw[i] == nullptr) continue;
      out[i] = std::move(*raw[i]);
      delete raw[i];
    }
    TORCH_CHECK(code == 0, "the backward pass of an operation failed: ", last_error);
    return out;
  }
};

}  // namespace

extern "C" {

const char* scalerl_last_error() { return last_error.c_str(); }

void scalerl_set_error(const char* text) { last_error = text; }

// Opens libtorch_cuda where an NVIDIA driver is present. 0: opened; 1: not, with the reason.
int scalerl_open_cuda() {
  return guarded([] {
    TORCH_CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL) != nullptr, "no NVIDIA driver (libcuda.so.1 not found)");
    TORCH_CHECK(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr, dlerror());
  });
}

// The version of the libtorch that was loaded, as 0x020b00 for 2.11.0; 0 when it does not say.
uint32_t scalerl_torch_version() {
  using Version = uint64_t (*)();
  const auto version = reinterpret_cast<Version>(dlsym(RTLD_DEFAULT, "aoti_torch_abi_version"));
  return version == nullptr ? 0 : static_cast<uint32_t>(version() >> 40);
}

// Whether a shared library can be opened; the reason is kept when it cannot.
int scalerl_can_open(const char* name) {
  return guarded([&] {
    void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    TORCH_CHECK(handle != nullptr, dlerror());
  });
}

// Opens a library by its path for the whole process; it stays open.
int scalerl_open_for_all(const char* path) {
  return guarded([&] { TORCH_CHECK(dlopen(path, RTLD_LAZY | RTLD_GLOBAL) != nullptr, dlerror()); });
}

// FP32 products are FP32 products: never TF32, and bf16 ones accumulate in FP32 throughout.
int scalerl_exact_matmuls() {
  return guarded([] {
    at::globalContext().setFloat32MatmulPrecision("highest");
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setAllowBF16ReductionCuBLAS(false, true);
  });
}

int scalerl_grad_enabled() { return at::GradMode::is_enabled() ? 1 : 0; }

int scalerl_device_memory(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes) {
  return guarded([&] {
    const auto info = at::accelerator::getMemoryInfo(static_cast<c10::DeviceIndex>(device));
    *free_bytes = info.first;
    *total_bytes = info.second;
  });
}

int scalerl_peak_memory(int32_t device, uint64_t* allocated, uint64_t* reserved) {
  return guarded([&] {
    const auto stats = at::accelerator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    *allocated = stats.allocated_bytes[0].peak;
    *reserved = stats.reserved_bytes[0].peak;
  });
}

int scalerl_reset_peak(int32_t device) {
  return guarded([&] { at::accelerator::resetPeakStats(static_cast<c10::DeviceIndex>(device)); });
}

int scalerl_empty_cache() {
  return guarded([] { at::accelerator::emptyCache(); });
}

int scalerl_synchronize(int32_t device) {
  return guarded([&] { at::accelerator::synchronizeDevice(static_cast<c10::DeviceIndex>(device)); });
}

// Waits for the work that this thread has given to torch's current stream, and for no other.
int scalerl_synchronize_stream(int32_t device) {
  return guarded([&] {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    guard.synchronizeStream(guard.getStream(place));
  });
}

// Gives this thread a stream of torch's pool on a device, and makes that device its current one.
// before: the stream it had, for scalerl_leave_stream.
int scalerl_enter_stream(int32_t device, int is_urgent, void** before) {
  return guarded([&] {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    guard.setDevice(place);
    auto held = std::make_unique<c10::Stream>(guard.getStream(place));
    guard.exchangeStream(guard.getStreamFromGlobalPool(place, is_urgent != 0));
    *before = held.release();
  });
}

void scalerl_leave_stream(void* before) {
  const std::unique_ptr<c10::Stream> held(static_cast<c10::Stream*>(before));
  guarded([&] { c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).exchangeStream(*held); });
}

// The CUstream that torch works on now, for kernels launched beside it.
int scalerl_current_stream(int32_t device, void** stream) {
  return guarded([&] {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Stream current = guard.getStream(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)));
    *stream = guard.getStreamNativeHandle(current);
  });
}

// A tensor of the CPU on a device, through page-locked memory: the host does not wait for what the stream still has to do.
int scalerl_upload(at::Tensor* tensor, int32_t device, at::Tensor** out) {
  return guarded([&] {
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    *out = new at::Tensor(tensor->pin_memory().to(place, tensor->scalar_type(), /*non_blocking=*/true));
  });
}

int scalerl_backward(at::Tensor* const* outputs, at::Tensor* const* grads, int64_t count) {
  return guarded([&] { torch::autograd::backward(list(outputs, count), list(grads, count)); });
}

// Moves the gradient out of a leaf; *grad stays null when there is none.
int scalerl_take_grad(at::Tensor* leaf, at::Tensor** grad) {
  return guarded([&] {
    at::Tensor& held = leaf->mutable_grad();
    *grad = held.defined() ? new at::Tensor(held) : nullptr;
    held.reset();
  });
}

// Hangs a Rust backward behind `outputs`, which were computed without autograd.
int scalerl_attach(
    at::Tensor* const* outputs, int64_t made, at::Tensor* const* inputs, int64_t count, Backward backward, Drop drop, void* state) {
  std::shared_ptr<RustNode> node;
  const int code = guarded([&] {
    node = std::shared_ptr<RustNode>(new RustNode(), torch::autograd::deleteNode);
    node->drop = drop;
    node->state = state;
    node->backward = backward;
    node->inputs = count;
    node->set_next_edges(torch::autograd::collect_next_edges(list(inputs, count)));
    for (int64_t i = 0; i < made; ++i) torch::autograd::set_history(*outputs[i], node);
  });
  if (!node) drop(state);
  return code;
}

int scalerl_fused_adamw(
    at::Tensor* const* parameters, at::Tensor* const* grads, at::Tensor* const* first, at::Tensor* const* second,
    at::Tensor* const* steps, int64_t count, double lr, double beta1, double beta2, double weight_decay, double epsilon,
    at::Tensor* divisor, at::Tensor* skip) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto step_list = list(steps, count);
    at::_foreach_add_(step_list, 1);
    // The kernel divides every gradient by grad_scale: clipping costs no pass of its own.
    at::_fused_adamw_(
        list(parameters, count), list(grads, count), list(first, count), list(second, count), {}, step_list, lr, beta1,
        beta2, weight_decay, epsilon, false, false, *divisor, *skip);
    // A skipped step is not a step.
    at::_foreach_sub_(step_list, std::vector<at::Tensor>(count, *skip));
  });
}

// target[i] += source[i], across kinds; with `replace`, target[i] = source[i].
int scalerl_foreach_into(at::Tensor* const* targets, at::Tensor* const* sources, int64_t count, int replace) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    if (replace != 0) {
      at::_foreach_copy_(list(targets, count), list(sources, count));
    } else {
      at::_foreach_add_(list(targets, count), list(sources, count));
    }
  });
}

int scalerl_global_norm(at::Tensor* const* tensors, int64_t count, at::Tensor** norm) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    const auto all = list(tensors, count);
    // torch's float32 norm on the CPU adds one long row of squares: a thousandth off for 20 million numbers. On CUDA
    // the norm of bf16 numbers would be rounded to their kind.
    const std::optional<at::ScalarType> kind = all[0].is_cpu() ? at::kDouble : at::kFloat;
    const auto each = at::stack(at::_foreach_norm(all, 2, kind));
    *norm = new at::Tensor(at::linalg_vector_norm(each, 2).to(at::kFloat));
  });
}

// Normal numbers from a generator of their own: torch's global one belongs to whoever samples meanwhile.
int scalerl_fill_normal(at::Tensor* tensor, double spread, uint64_t seed) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    tensor->normal_(0.0, spread, at::detail::createCPUGenerator(seed));
  });
}

// Flash attention over packed sequences (CUDA). q: [tokens, heads, width]; window: tokens that a query sees, itself among
// them; 0 is no limit. out: the output, and what its backward pass asks for: log-sum-exp, and the state of noise that is not drawn.
int scalerl_flash_forward(
    at::Tensor* q, at::Tensor* k, at::Tensor* v, at::Tensor* starts, int64_t longest, int64_t window, double scale,
    at::Tensor** out) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    const auto [left, right] = flash_window(window);
    auto result = at::_flash_attention_forward(
        *q, *k, *v, *starts, *starts, longest, longest, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale, left, right);
    out[0] = new at::Tensor(std::get<0>(result));
    out[1] = new at::Tensor(std::get<1>(result));
    out[2] = new at::Tensor(std::get<2>(result));
    out[3] = new at::Tensor(std::get<3>(result));
  });
}

// cuDNN's causal attention. q: [sequences, heads, length, width]. The same four tensors.
int scalerl_cudnn_forward(at::Tensor* q, at::Tensor* k, at::Tensor* v, double scale, at::Tensor** out) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto result = at::_scaled_dot_product_cudnn_attention(
        *q, *k, *v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale);
    out[0] = new at::Tensor(std::get<0>(result));
    out[1] = new at::Tensor(std::get<1>(result));
    out[2] = new at::Tensor(std::get<6>(result));
    out[3] = new at::Tensor(std::get<7>(result));
  });
}

// From here on torch notes what the device runs (CUPTI); what ran before is not in it.
int scalerl_profile_start() {
  return guarded([] {
    namespace profiler = torch::autograd::profiler;
    const std::set<torch::profiler::impl::ActivityType> kinds = {torch::profiler::impl::ActivityType::CUDA};
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    profiler::prepareProfiler(config, kinds);
    profiler::enableProfiler(config, kinds);
  });
}

// Stops and hands over each piece of device work in the order of its beginning: name, nanoseconds at its begin and of its length.
int scalerl_profile_stop(void* state, void (*take)(void* state, const char* name, uint64_t start, uint64_t length)) {
  return guarded([&] {
    const auto result = torch::autograd::profiler::disableProfiler();
    for (const auto& event : result->events()) {
      if (event.deviceType() != c10::DeviceType::CUDA) continue;
      take(state, event.name().c_str(), event.startNs(), event.durationNs());
    }
  });
}

}  // extern "C"
