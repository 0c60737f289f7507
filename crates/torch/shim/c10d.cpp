// Collectives between processes, as a C interface: torch's TCPStore, Gloo for the CPU, NCCL for CUDA.
//
// Gloo is part of libtorch_cpu. NCCL's side lives in libtorch_cuda, which this program opens at run time, and its
// headers want CUDA's and NCCL's: its constructors are looked up by their mangled names (torch 2.11) and the object
// is used through c10d::Backend, whose virtual functions need neither. A build therefore never sees CUDA.
//
// Every call has a deadline. Gloo ends an operation itself; NCCL is polled and aborted, because a kernel that waits
// for a dead peer would wait for ever. Functions return 0, or 1 after scalerl_set_error() (shim.cpp).

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "guarded.hpp"
#include "tensors.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

struct StoreHandle {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

struct Group {
  // Null in a Gloo group that was aborted.
  c10::intrusive_ptr<c10d::Backend> backend;
  bool is_nccl = false;
  bool is_aborted = false;

  c10d::Backend& live() {
    TORCH_CHECK(!is_aborted, "the group was aborted");
    return *backend;
  }
};

// NCCL: `wait` would only make the stream wait, and the stream would wait for ever.
void finish_nccl(Group& group, const WorkPointer& work, Clock::time_point deadline) {
  auto pause = std::chrono::microseconds(20);
  while (!work->isCompleted()) {
    if (Clock::now() >= deadline) {
      group.is_aborted = true;
      group.backend->abort();
      TORCH_CHECK(false, "the operation did not end in time");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  // WorkNCCL::isSuccess() only throws that it is deprecated.
  if (const auto error = work->exception()) std::rethrow_exception(error);
  work->synchronize();
}

void finish(Group& group, const WorkPointer& work, Clock::time_point deadline) {
  if (group.is_nccl) return finish_nccl(group, work, deadline);
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
  work->wait(std::max(left, Milliseconds(1)));
}

// Starts an operation and sees it through to its end or its deadline.
template <typename Start>
int operation(void* raw, int64_t timeout_ms, Start&& start) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto& group = *static_cast<Group*>(raw);
    const Milliseconds timeout(timeout_ms);
    const auto deadline = Clock::now() + timeout;
    for (const auto& work : start(group.live(), timeout)) finish(group, work, deadline);
  });
}

using Works = std::vector<WorkPointer>;

// An operation that goes on while its caller does something else. Holds the tensors until it has ended.
struct Underway {
  WorkPointer work;
  at::Tensor to, from;
  // Gloo sums in place: the own part is copied out at the end.
  bool is_own_part_left = false;
};

// Objects of NCCL's classes: room enough for any build of torch 2.11 (in the wheel a group has 1,112 bytes). Their
// virtual destructors free the memory with the operator delete that belongs to this new.
constexpr size_t OPTIONS_ROOM = 1 << 14;
constexpr size_t GROUP_ROOM = 1 << 16;

void* zeroed(size_t bytes) {
  void* room = ::operator new(bytes);
  std::fill_n(static_cast<unsigned char*>(room), bytes, static_cast<unsigned char>(0));
  return room;
}

c10::intrusive_ptr<c10d::Backend> make_nccl(StorePointer store, int rank, int size, Milliseconds timeout) {
  // Stand-ins with the size and the calling convention of the real pointers: intrusive_ptr is one pointer, passed by
  // the address of a temporary.
  using Options = c10d::Backend::Options;
  using MakeOptions = void (*)(void*, bool);
  using MakeGroup = void (*)(void*, StorePointer, int, int, c10::intrusive_ptr<Options>);
  const auto make_options = symbol<MakeOptions>("_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb");
  const auto make_group = symbol<MakeGroup>(
      "_ZN4c10d16ProcessGroupNCCLC1EN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_target_default_null_typeIS3_"
      "EEEEiiNS2_INS0_7OptionsENS5_IS8_EEEE");
  // A peer that is lost must be our error, not the end of this process by torch's watchdog.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  auto* options = static_cast<Options*>(zeroed(OPTIONS_ROOM));
  make_options(options, false);
  options->timeout = timeout;
  auto shared = c10::intrusive_ptr<Options>::unsafe_steal_from_new(options);
  auto* group = static_cast<c10d::Backend*>(zeroed(GROUP_ROOM));
  make_group(group, std::move(store), rank, size, std::move(shared));
  return c10::intrusive_ptr<c10d::Backend>::unsafe_steal_from_new(group);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(
    const StorePointer& store, int rank, int size, const char* address, Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace

extern "C" {

// A store: its server on a bound socket (listener >= 0, ours from here on) or a client of one.
int scalerl_store_open(const char* host, uint16_t port, int listener, int64_t timeout_ms, void** out) {
  // torch's flight recorder notes new groups in a map without a lock (2.11, recordWithResetEnabled): two threads that
  // begin to use groups at once crash or hang. Every group needs a store first, and the recorder looks once.
  static std::once_flag once;
  std::call_once(once, [] { setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1); });
  // What goes wrong is an error of the caller's; c10d would also print it, with traces, where programs print.
  if (getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  return guarded([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = listener >= 0;
    options.waitWorkers = false;
    options.timeout = Milliseconds(timeout_ms);
    if (listener >= 0) options.masterListenFd = listener;
    *out = new StoreHandle{c10::make_intrusive<c10d::TCPStore>(host, options)};
  });
}

void scalerl_store_drop(void* raw) {
  guarded([&] { delete static_cast<StoreHandle*>(raw); });
}

int scalerl_store_set(void* raw, const char* key, const uint8_t* bytes, size_t count) {
  return guarded([&] { static_cast<StoreHandle*>(raw)->store->set(key, std::vector<uint8_t>(bytes, bytes + count)); });
}

// Waits for a key; hands its value to `sink` before it returns.
int scalerl_store_get(
    void* raw, const char* key, int64_t timeout_ms, void (*sink)(void*, const uint8_t*, size_t), void* state) {
  return guarded([&] {
    auto& store = *static_cast<StoreHandle*>(raw)->store;
    store.wait({key}, Milliseconds(timeout_ms));
    const auto value = store.get(key);
    sink(state, value.data(), value.size());
  });
}

int scalerl_store_has(void* raw, const char* key, int* found) {
  return guarded([&] { *found = static_cast<StoreHandle*>(raw)->store->check({key}) ? 1 : 0; });
}

int scalerl_store_add(void* raw, const char* key, int64_t amount, int64_t* sum) {
  return guarded([&] { *sum = static_cast<StoreHandle*>(raw)->store->add(key, amount); });
}

int scalerl_store_delete(void* raw, const char* key) {
  return guarded([&] { static_cast<StoreHandle*>(raw)->store->deleteKey(key); });
}

// address: of this machine, for Gloo's connections; null makes an NCCL group.
int scalerl_group_new(
    void* store, const char* prefix, int rank, int size, const char* address, int64_t timeout_ms, void** out) {
  return guarded([&] {
    // A connection of its own: waiting in it must not hold up the caller's store.
    const Milliseconds timeout(timeout_ms);
    auto own = static_cast<StoreHandle*>(store)->store->clone();
    own->setTimeout(timeout);
    auto named = c10::make_intrusive<c10d::PrefixStore>(prefix, own);
    auto group = std::make_unique<Group>();
    group->is_nccl = address == nullptr;
    group->backend = group->is_nccl ? make_nccl(named, rank, size, timeout) : make_gloo(named, rank, size, address, timeout);
    *out = group.release();
  });
}

void scalerl_group_drop(void* raw) {
  auto* group = static_cast<Group*>(raw);
  // NCCL wants to be told before its destructor runs; an aborted group has been told.
  if (group->is_nccl && !group->is_aborted) guarded([&] { group->backend->shutdown(); });
  guarded([&] { delete group; });
}

// Gloo cannot be aborted; without its group it closes its connections, once what all ranks have begun has ended.
int scalerl_group_abort(void* raw) {
  return guarded([&] {
    auto& group = *static_cast<Group*>(raw);
    if (group.is_aborted) return;
    group.is_aborted = true;
    if (group.is_nccl) return group.backend->abort();
    group.backend.reset();
  });
}

// All tensors are under way at once.
int scalerl_group_broadcast(void* raw, at::Tensor* const* tensors, int64_t count, int64_t root, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    Works works;
    for (auto& tensor : list(tensors, count)) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = timeout;
      std::vector<at::Tensor> one{tensor.detach()};
      works.push_back(backend.broadcast(one, options));
    }
    return works;
  });
}

int scalerl_group_all_reduce(void* raw, at::Tensor* tensor, int is_max, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::AllreduceOptions options;
    options.reduceOp = is_max != 0 ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    options.timeout = timeout;
    std::vector<at::Tensor> one{tensor->detach()};
    return Works{backend.allreduce(one, options)};
  });
}

int scalerl_group_reduce_scatter(void* raw, at::Tensor* output, at::Tensor* input, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::ReduceScatterOptions options;
    options.timeout = timeout;
    auto to = output->detach(), from = input->detach();
    return Works{backend._reduce_scatter_base(to, from, options)};
  });
}

int scalerl_group_all_gather(void* raw, at::Tensor* output, at::Tensor* input, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::AllgatherOptions options;
    options.timeout = timeout;
    auto to = output->detach(), from = input->detach();
    return Works{backend._allgather_base(to, from, options)};
  });
}

// Rows of `input`, those of rank 0 first, go to the ranks in numbers of `sent`; `received` says how many come from each.
int scalerl_group_all_to_all(
    void* raw, at::Tensor* output, at::Tensor* input, const int64_t* received, const int64_t* sent, int64_t ranks,
    int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    auto to = output->detach(), from = input->detach();
    std::vector<int64_t> coming(received, received + ranks), going(sent, sent + ranks);
    return Works{backend.alltoall_base(to, from, coming, going, options)};
  });
}

// outputs: one tensor a rank at rank 0, none elsewhere.
int scalerl_group_gather(void* raw, at::Tensor* const* outputs, int64_t count, at::Tensor* input, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::GatherOptions options;
    options.timeout = timeout;
    std::vector<std::vector<at::Tensor>> to;
    if (count > 0) to.push_back(list(outputs, count));
    std::vector<at::Tensor> from{input->detach()};
    return Works{backend.gather(to, from, options)};
  });
}

// inputs: one tensor a rank at rank 0, none elsewhere.
int scalerl_group_scatter(void* raw, at::Tensor* output, at::Tensor* const* inputs, int64_t count, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::ScatterOptions options;
    options.timeout = timeout;
    std::vector<at::Tensor> to{output->detach()};
    std::vector<std::vector<at::Tensor>> from;
    if (count > 0) from.push_back(list(inputs, count));
    return Works{backend.scatter(to, from, options)};
  });
}

// As scalerl_group_all_gather, without waiting.
int scalerl_group_start_all_gather(void* raw, at::Tensor* output, at::Tensor* input, int64_t timeout_ms, void** out) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    c10d::AllgatherOptions options;
    options.timeout = Milliseconds(timeout_ms);
    auto underway = std::make_unique<Underway>();
    underway->to = output->detach();
    underway->from = input->detach();
    underway->work = static_cast<Group*>(raw)->live()._allgather_base(underway->to, underway->from, options);
    *out = underway.release();
  });
}

// As scalerl_group_reduce_scatter, without waiting; over Gloo `input` is overwritten.
int scalerl_group_start_reduce_scatter(
    void* raw, at::Tensor* output, at::Tensor* input, int64_t timeout_ms, void** out) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto& group = *static_cast<Group*>(raw);
    auto underway = std::make_unique<Underway>();
    underway->to = output->detach();
    underway->from = input->detach();
    if (group.is_nccl) {
      c10d::ReduceScatterOptions options;
      options.timeout = Milliseconds(timeout_ms);
      underway->work = group.live()._reduce_scatter_base(underway->to, underway->from, options);
    } else {
      // c10d's own does the same on a copy, when it is waited for, and with another deadline.
      c10d::AllreduceOptions options;
      options.timeout = Milliseconds(timeout_ms);
      std::vector<at::Tensor> one{underway->from};
      underway->work = group.live().allreduce(one, options);
      underway->is_own_part_left = true;
    }
    *out = underway.release();
  });
}

// Waits for an operation of this group.
int scalerl_underway_finish(void* raw, void* started, int64_t timeout_ms) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto& group = *static_cast<Group*>(raw);
    auto& underway = *static_cast<Underway*>(started);
    finish(group, underway.work, Clock::now() + Milliseconds(timeout_ms));
    if (underway.is_own_part_left) {
      const auto part = underway.to.numel();
      underway.to.copy_(underway.from.narrow(0, part * group.live().getRank(), part));
    }
  });
}

void scalerl_underway_drop(void* started) {
  guarded([&] { delete static_cast<Underway*>(started); });
}

int scalerl_group_barrier(void* raw, int64_t timeout_ms) {
  return operation(raw, timeout_ms, [&](c10d::Backend& backend, Milliseconds timeout) {
    c10d::BarrierOptions options;
    options.timeout = timeout;
    return Works{backend.barrier(options)};
  });
}

}  // extern "C"
