// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/visible_work.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// --- which work is visible ---

constinit std::atomic<bool> everything_is_visible{false};
constinit std::atomic<bool> any_host_memory{false};

namespace {

constinit std::atomic<const char*> why_visible{nullptr};

// One bit for each 2 MiB page that holds such memory. The bit is the page's number modulo the
// number of bits: pages 2 TiB apart share one, so one counts for both.
constexpr uint64_t kPageShift = 21, kPages = uint64_t{1} << 20;
constinit std::atomic<uint64_t> pages[kPages / 64] = {};

constexpr uint64_t kLowestAddress = uint64_t{1} << 16, kAddressesEnd = uint64_t{1} << 47;
constinit std::atomic<uint64_t> lowest_address{kLowestAddress};
constinit std::atomic<bool> any_is_within_reach{false};

std::atomic<uint64_t>& word_of(uint64_t page) { return pages[page % kPages / 64]; }
constexpr uint64_t bit_of(uint64_t page) { return uint64_t{1} << (page % 64); }

bool is_noted(uint64_t address) {
  const uint64_t page = address >> kPageShift;
  return (word_of(page).load(std::memory_order_relaxed) & bit_of(page)) != 0;
}

// What the driver says about the parameters of a function. An entry belongs to one function for
// good. If `unloadings` is outdated, the driver must be asked again.
struct Function {
  static constexpr uint32_t kMost = 26;
  std::atomic<CUfunction> handle;
  std::atomic<uint32_t> unloadings;
  std::atomic<uint16_t> count;  // kUnknown: the driver does not say, or more than kMost
  std::atomic<uint16_t> bytes[kMost];
};
constexpr uint16_t kUnknown = UINT16_MAX;
constexpr size_t kFunctions = 4096;
constinit Function functions[kFunctions] = {};
constinit std::atomic<uint32_t> unloadings{1};
constinit alloc::Mutex functions_mutex;  // held while an entry is written

// The handle of a launch may be a CUfunction or a CUkernel.
CUresult ask_parameter(CUfunction handle, size_t i, size_t* bytes) {
  const Driver& d = driver();
  size_t offset = 0;
  const CUresult result = d.cuFuncGetParamInfo == nullptr
                              ? CUDA_ERROR_INVALID_HANDLE
                              : d.cuFuncGetParamInfo(handle, i, &offset, bytes);
  if (result != CUDA_ERROR_INVALID_HANDLE || d.cuKernelGetParamInfo == nullptr) return result;
  return d.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(handle), i, &offset, bytes);
}

uint16_t ask_parameters(CUfunction handle, Function& into) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < Function::kMost; ++i) {
    const CUresult result = ask_parameter(handle, i, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) return static_cast<uint16_t>(i);  // no more parameters
    if (result != CUDA_SUCCESS || bytes > kUnknown) break;
    into.bytes[i].store(static_cast<uint16_t>(bytes), std::memory_order_relaxed);
  }
  return kUnknown;
}

// nullptr: no entry is free.
const Function* find_function(CUfunction handle) {
  const uint32_t now = unloadings.load(std::memory_order_acquire);
  const size_t start = reinterpret_cast<uintptr_t>(handle) / 16 * 0x9E3779B1 % kFunctions;
  constexpr size_t kTries = 16;
  for (size_t i = 0; i < kTries; ++i) {
    Function& entry = functions[(start + i) % kFunctions];
    CUfunction there = entry.handle.load(std::memory_order_acquire);
    if (there == handle && entry.unloadings.load(std::memory_order_acquire) == now) return &entry;
    if (there != handle && there != nullptr) continue;
    const alloc::LockGuard guard(functions_mutex);
    there = entry.handle.load(std::memory_order_relaxed);
    if (there != handle && there != nullptr) continue;
    if (there == handle && entry.unloadings.load(std::memory_order_relaxed) == now) return &entry;
    entry.count.store(ask_parameters(handle, entry), std::memory_order_relaxed);
    entry.unloadings.store(now, std::memory_order_release);
    entry.handle.store(handle, std::memory_order_release);
    return &entry;
  }
  return nullptr;
}

// Addresses are aligned as in C++, unless the size shows that the struct is packed.
template <typename Is>
bool holds_address(const void* data, size_t bytes, Is is) {
  const size_t step = bytes % sizeof(uint64_t) == 0 ? sizeof(uint64_t) : sizeof(uint32_t);
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += step) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(data) + at, sizeof word);
    if (is(word)) return true;
  }
  return false;
}

bool holds_host_address(const void* data, size_t bytes) {
  return holds_address(data, bytes, lies_in_host_memory);
}

bool extra_is_visible(void* const* extra) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return true;
    }
  }
  return buffer != nullptr && holds_host_address(buffer, bytes);
}

}  // namespace

void everything_becomes_visible(const char* why) {
  static constinit std::atomic<bool> done{false};
  if (!done.load(std::memory_order_acquire) && active()) {
    const char* none = nullptr;
    why_visible.compare_exchange_strong(none, why);
    everything_is_visible.store(true, std::memory_order_seq_cst);
    forget_submitters();
    done.store(true, std::memory_order_release);
  }
  pay_debts();
}

const char* why_everything_is_visible() { return why_visible.load(std::memory_order_acquire); }

void host_memory_appeared(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t first = address >> kPageShift, last = (address + bytes - 1) >> kPageShift;
  if (last - first >= kPages) return everything_becomes_visible();
  for (uint64_t page = first; page <= last; ++page) {
    std::atomic<uint64_t>& word = word_of(page);
    if ((word.load(std::memory_order_relaxed) & bit_of(page)) == 0) word.fetch_or(bit_of(page));
  }
  if (any_host_memory.load() || any_host_memory.exchange(true)) return;
  submissions_are_not_quiet();
}

// If the device reaches the host's memory, an address outside the pools may be the host's. Numbers
// below the addresses that the system gives out, or beyond them, are no addresses.
bool lies_in_host_memory(uint64_t address) {
  if (address < lowest_address.load(std::memory_order_relaxed) || address >= kAddressesEnd) {
    return false;
  }
  return is_noted(address) || (any_is_within_reach.load(std::memory_order_relaxed) &&
                               shared().index.find(address) == nullptr);
}

// A program at a fixed address has its heap behind its image, below 4 GiB.
void all_host_memory_appears() {
  lowest_address.store(getauxval(AT_PHDR) >> 32 != 0 ? uint64_t{1} << 32 : kLowestAddress);
  any_is_within_reach.store(true);
  if (any_host_memory.load() || any_host_memory.exchange(true)) return;
  submissions_are_not_quiet();
}

bool kernel_is_visible(CUfunction kernel, void* const* parameters, void* const* extra) {
  if (everything_is_visible.load(std::memory_order_relaxed)) return true;
  if (!any_host_memory.load(std::memory_order_acquire)) return false;
  if (extra != nullptr && extra_is_visible(extra)) return true;
  if (parameters == nullptr) return false;
  const Function* function = find_function(kernel);
  if (function == nullptr) return true;
  const uint16_t count = function->count.load(std::memory_order_relaxed);
  if (count == kUnknown) return true;
  for (uint16_t i = 0; i < count; ++i) {
    const size_t bytes = function->bytes[i].load(std::memory_order_relaxed);
    if (parameters[i] == nullptr || holds_host_address(parameters[i], bytes)) return true;
  }
  return false;
}

void functions_changed() { unloadings.fetch_add(1, std::memory_order_acq_rel); }

// Only noted memory counts: too many numbers in a copy might otherwise be addresses.
void look_at_copied(const void* source, size_t bytes) {
  if (source == nullptr || bytes > kSmallCopy || !any_host_memory.load(std::memory_order_acquire)) {
    return;
  }
  const auto noted = [](uint64_t word) { return word >= kLowestAddress && is_noted(word); };
  if (holds_address(source, bytes, noted)) {
    everything_becomes_visible("a copy carried an address of host memory to the device");
  }
}

void reset_visible_after_fork() { functions_mutex.reset(); }

// --- the wait of a free ---

namespace {

// The newest visible work of a stream. The event belongs to the context, and serves any of its
// streams.
struct Followed {
  CUcontext context;  // nullptr: not used yet
  CUstream stream;
  CUevent event;
  bool pending;  // recorded, and not yet seen to have passed
};
constexpr int kMost = 16;
constinit Followed list[kMost] = {};
constinit alloc::Mutex list_mutex;

constexpr uint64_t kPatienceNs = 100'000'000;  // another thread may be held up in the driver
const auto kNoStream = reinterpret_cast<CUstream>(~uintptr_t{0});

// The stream's entry, else an idle entry of the context, else a new one with an event of the
// context.
Followed* find_followed(CUcontext context, CUstream stream) {
  Followed *idle = nullptr, *unused = nullptr;
  for (Followed& each : list) {
    if (each.context == context && each.stream == stream) return &each;
    if (each.context == context && !each.pending) idle = &each;
    if (each.context == nullptr) unused = &each;
  }
  if (idle != nullptr || unused == nullptr) return idle;
  if (!create_event(&unused->event)) return nullptr;
  *unused = {context, kNoStream, unused->event, false};
  return unused;
}

}  // namespace

// A context without a pool, such as a green one, is not followed.
bool follow_visible_work(CUstream stream) {
  const GatePass pass;  // it also keeps the event out of a capture
  const Context* context = current_context();
  if (!pass || context == nullptr || !list_mutex.lock_within(kPatienceNs)) return false;
  Followed* followed = find_followed(context->handle.load(), stream);
  CUresult recorded = CUDA_ERROR_OUT_OF_MEMORY;
  if (followed != nullptr) {
    followed->stream = stream;
    recorded = noted(driver().cuEventRecord(followed->event, stream));
    followed->pending = followed->pending || recorded == CUDA_SUCCESS;
  }
  list_mutex.unlock();
  return recorded == CUDA_SUCCESS;
}

bool any_visible_work(const Context& context) {
  CUcontext handle = context.handle.load();
  const alloc::LockGuard guard(list_mutex);
  return std::any_of(std::begin(list), std::end(list),
                     [=](const Followed& each) { return each.context == handle && each.pending; });
}

namespace {

// Whether other contexts may have visible work, even work that no event follows, or work of other
// threads. Another thread's work counts because it may finish only with the help of that thread. If
// the calling thread left a debt behind such work and ended, that thread would wait for the debt
// without a limit (work.h). In a context that was never seen empty, the work's thread is unknown.
bool others_may_show(CUcontext own) {
  const ThreadId me = this_thread_id();
  bool any = false;
  for_each_context([&](const Context& each) {
    any |= each.handle.load() != own && !each.unfinished.only_of(me);
  });
  return any;
}

}  // namespace

bool may_await_visible_work(CUstream stream) {
  const auto any_but_of = [](CUcontext own) {
    if (others_may_show(own)) return true;
    const alloc::LockGuard guard(list_mutex);
    return std::any_of(std::begin(list), std::end(list),
                       [=](const Followed& each) { return each.pending && each.context != own; });
  };
  if (!several_contexts() || !any_but_of(nullptr)) return false;
  CUcontext own = nullptr;
  const auto ask = driver().cuStreamGetCtx;
  if (stands_for_several(stream)) {
    own = current_handle();
  } else if (ask == nullptr || ask(stream, &own) != CUDA_SUCCESS) {
    return true;
  }
  return any_but_of(own);
}

// The context may end meanwhile, and its events with it, so each look is a Visit. Work that failed
// is over.
void await_visible_work(Context& context) {
  const NoCancel in_hand;
  const auto over = [&] {
    const LetByCaptures allowed;  // a capture may begin meanwhile
    const Visit visit(context);
    const ContextScope scope(visit.open() ? visit.handle() : nullptr);
    if (!visit.open() || !scope) return true;
    const alloc::LockGuard guard(list_mutex);
    bool any = false;
    for (Followed& each : list) {
      if (each.context != visit.handle() || !each.pending) continue;
      each.pending = state_of(each.event, visit.handle()) == alloc::MarkState::pending;
      any |= each.pending;
    }
    return !any;
  };
  alloc::os::wait_until(over, UINT64_MAX);
}

// The stream's work must still be waited for, and a new stream may get its handle.
void visible_work_leaves(CUstream stream) {
  const alloc::LockGuard guard(list_mutex);
  for (Followed& each : list) {
    if (each.stream == stream) each.stream = kNoStream;
  }
}

void visible_work_gone(CUcontext handle) {
  const alloc::LockGuard guard(list_mutex);
  for (Followed& each : list) {
    if (each.context == handle) each = {};
  }
}

void reset_visible_work_after_fork() {
  list_mutex.reset();
  std::fill(std::begin(list), std::end(list), Followed{});
}

}  // namespace cistern::shim
