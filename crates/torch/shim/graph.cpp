// CUDA graphs of torch operations, and flash attention of prompt chunks, as a C interface.
//
// at::cuda::CUDAGraph makes torch's allocator and the capture agree, but lives in libtorch_cuda, which this
// program opens at run time: its members are looked up by their mangled names. They belong to torch 2.11.
//
// Every function returns 0, or 1 after it has stored a sentence for scalerl_last_error() (shim.cpp).

#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <optional>
#include <string>
#include <utility>

#include "flash.hpp"
#include "guarded.hpp"
#include "tensors.hpp"

namespace {

using Pool = std::pair<unsigned long long, unsigned long long>;

struct Members {
  void (*construct)(void*, bool) = symbol<void (*)(void*, bool)>("_ZN2at4cuda9CUDAGraphC1Eb");
  void (*destruct)(void*) = symbol<void (*)(void*)>("_ZN2at4cuda9CUDAGraphD1Ev");
  void (*begin)(void*, Pool, int) = symbol<void (*)(void*, Pool, int)>("_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
  void (*end)(void*) = symbol<void (*)(void*)>("_ZN2at4cuda9CUDAGraph11capture_endEv");
  void (*replay)(void*) = symbol<void (*)(void*)>("_ZN2at4cuda9CUDAGraph6replayEv");
  Pool (*pool)(void*) = symbol<Pool (*)(void*)>("_ZN2at4cuda9CUDAGraph4poolEv");
};

const Members& members() {
  static const Members found;
  return found;
}

// cudaStreamCaptureModeThreadLocal: other threads (a trainer) may allocate meanwhile.
constexpr int THREAD_LOCAL = 1;

struct Graph {
  // at::cuda::CUDAGraph has a few hundred bytes.
  alignas(64) unsigned char object[4096];
  std::optional<c10::Stream> before;
};

}  // namespace

extern "C" {

int scalerl_graph_new(void** out) {
  return guarded([&] {
    auto graph = std::make_unique<Graph>();
    members().construct(graph->object, false);
    *out = graph.release();
  });
}

void scalerl_graph_drop(void* raw) {
  auto* graph = static_cast<Graph*>(raw);
  guarded([&] { members().destruct(graph->object); });
  delete graph;
}

// Work of this thread is recorded from here on instead of done. pool: {0, 0}, or that of another graph.
int scalerl_graph_begin(void* raw, int32_t device, uint64_t pool_first, uint64_t pool_second) {
  return guarded([&] {
    auto* graph = static_cast<Graph*>(raw);
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    // The legacy stream cannot be captured. A thread with a stream of its own records on that: its
    // priority is kept, and no further stream gets workspaces of its own.
    const c10::Stream current = guard.getStream(place);
    guard.synchronizeStream(current);
    const bool is_legacy = current == guard.getDefaultStream(place);
    graph->before = guard.exchangeStream(is_legacy ? guard.getStreamFromGlobalPool(place, false) : current);
    try {
      members().begin(graph->object, Pool(pool_first, pool_second), THREAD_LOCAL);
    } catch (...) {
      guard.exchangeStream(*graph->before);
      throw;
    }
  });
}

int scalerl_graph_end(void* raw, uint64_t* pool_first, uint64_t* pool_second) {
  auto* graph = static_cast<Graph*>(raw);
  const int code = guarded([&] {
    members().end(graph->object);
    const Pool pool = members().pool(graph->object);
    *pool_first = pool.first;
    *pool_second = pool.second;
  });
  const int back = guarded([&] { c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).exchangeStream(*graph->before); });
  return code != 0 ? code : back;
}

int scalerl_graph_replay(void* raw) {
  return guarded([&] { members().replay(static_cast<Graph*>(raw)->object); });
}

// Flash attention where queries are the last tokens of longer sequences; CUDA only. window: as in scalerl_flash_forward.
int scalerl_flash_chunks(
    at::Tensor* q, at::Tensor* k, at::Tensor* v, at::Tensor* q_starts, at::Tensor* k_starts, int64_t q_longest, int64_t k_longest,
    int64_t window, double scale, at::Tensor** out) {
  return guarded([&] {
    const auto [left, right] = flash_window(window);
    auto result = at::_flash_attention_forward(
        *q, *k, *v, *q_starts, *k_starts, q_longest, k_longest, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale, left,
        right);
    *out = new at::Tensor(std::get<0>(result));
  });
}

}  // extern "C"
