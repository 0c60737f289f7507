// Bytes of tensors on the CPU, now and at the most: what a GPU's allocator says of itself, for tests of what
// a run holds. Off until it is asked for; from then on for the whole process. A limit makes it fail as a full
// device does.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "guarded.hpp"

namespace {

std::mutex mutex;
std::unordered_map<void*, uint64_t> sizes;
uint64_t held = 0;
uint64_t peak = 0;
uint64_t limit = std::numeric_limits<uint64_t>::max();

void release(void* data) {
  if (data == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = sizes.find(data);
    if (found != sizes.end()) {
      held -= found->second;
      sizes.erase(found);
    }
  }
  c10::free_cpu(data);
}

struct Counting final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      TORCH_CHECK_WITH(
          OutOfMemoryError, bytes <= limit && held <= limit - bytes, "CPU out of memory. Tried to allocate ", bytes,
          " bytes beside ", held, ", and ", limit, " are all there is");
    }
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex);
      sizes[data] = bytes;
      held += bytes;
      peak = std::max(peak, held);
    }
    return {data, data, &release, at::Device(at::DeviceType::CPU)};
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

}  // namespace

extern "C" {

int scalerl_count_cpu_memory() {
  return guarded([] {
    static Counting counting;
    c10::SetCPUAllocator(&counting, /*priority=*/255);
  });
}

void scalerl_cpu_memory(uint64_t* now, uint64_t* most) {
  const std::lock_guard<std::mutex> lock(mutex);
  *now = held;
  *most = peak;
}

void scalerl_reset_cpu_peak() {
  const std::lock_guard<std::mutex> lock(mutex);
  peak = held;
}

void scalerl_limit_cpu_memory(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  limit = bytes;
}

}  // extern "C"
