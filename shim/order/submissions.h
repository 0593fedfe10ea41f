// SPDX-License-Identifier: Apache-2.0
// The program submits work to the device. From then on frees have something to wait for. The thread
// that submitted it, and whether the host sees it, decide how they wait (barrier/work.h). Freed
// memory is marked before the submission (allocator/reclaim/reclaim.h), so that the mark covers
// only earlier work: freed memory does not wait for work launched after its free. The contexts that
// take part in the work are found from the arguments of the call. Which functions these are:
// submissions.def. Any thread.
#pragma once

#include <cstddef>
#include <type_traits>

#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"
#include "shim/process/thread.h"

namespace cistern::shim {

// The state that the last submission left in all contexts: its thread, with kVisible if that holds
// for all of them; or kSeveral. A submission that would leave the same has nothing to note.
extern constinit std::atomic<uintptr_t> last_submitter;

// See note_submission() and mark_frees().
void note_first_submission(bool visible);
void mark_frees_before_submission(bool may_wait_for_host);

// Call note_submission() before each driver call that submits work or records an event, and
// note_handed_over() after it. Before, because the work may begin, and another thread learn of it,
// before the driver call is over. After, because a synchronisation that began after the first call
// may have ended before the driver got the work. (Until the second call a thread that learns of the
// work from the device itself may then find the context empty.) `visible`: the host sees the work
// (barrier/visible_work.h), and no event is recorded behind it.
inline void note_submission(bool visible) {
  // Load the number first: a thread that ends the state of the contexts clears last_submitter
  // before.
  const bool may_be_empty = contexts_seen_empty.load(std::memory_order_acquire) != 0;
  const uintptr_t last = last_submitter.load(std::memory_order_acquire);
  const auto thread = reinterpret_cast<uintptr_t>(&this_thread);
  const bool known = last == (thread | Unfinished::kVisible) || (last == thread && !visible) ||
                     last == Unfinished::kSeveral;
  if (may_be_empty || !known) [[unlikely]]
    note_first_submission(visible);
}

inline void note_handed_over(bool visible) {
  note_submission(visible);
  if (others_debts()) [[unlikely]]
    others_debts_may_cover_work();
}

// Whose submissions are *quiet* (quiet_submitter in barrier/work.h): nothing to note and nothing to
// wait for, the common case. If the value covers this thread, and is the same after the driver
// call, the submission was quiet throughout.
inline uintptr_t who_is_quiet() { return quiet_submitter.load(std::memory_order_acquire); }
inline bool covers_this_thread(uintptr_t quiet) {
  return quiet == reinterpret_cast<uintptr_t>(&this_thread) || quiet == Unfinished::kSeveral;
}
// Checks whether the calling thread's submissions are quiet now, and sets quiet_submitter if so.
void quieten();

class SubmissionScope {
 public:
  explicit SubmissionScope(bool visible) : visible_(visible) { note_submission(visible_); }
  ~SubmissionScope() { note_handed_over(visible_); }
  SubmissionScope(const SubmissionScope&) = delete;
  SubmissionScope& operator=(const SubmissionScope&) = delete;

 private:
  const bool visible_;
};

// To be called before the driver call. `may_wait_for_host`: the work may need the host to end, such
// as a wait for a value; then every free is marked. Before other work the last frees stay unmarked
// if they are few and the last mark is recent.
inline void mark_frees(bool may_wait_for_host) {
  if (shared().reclaim.any_unmarked()) [[unlikely]]
    mark_frees_before_submission(may_wait_for_host);
}

// The next submission takes the slow path and looks at its context (contexts/context_life.h), even
// if it has nothing to note.
void next_submission_looks();

void reset_submissions_after_fork();

// Whether visible work of the calling thread can be followed (barrier/visible_work.h). False while
// work of several threads is unfinished.
inline bool submits_alone() {
  return last_submitter.load(std::memory_order_relaxed) != Unfinished::kSeveral;
}

// --- the contexts that take part in submitted work, found from the arguments of the call: the
// context of the stream, else the current one; the owners of the addresses; contexts passed as
// arguments; those of a graph. The type of an argument decides how it is read, so one function
// serves every row of submissions.def. Used only if the process has several contexts.

class Participants {
 public:
  // `Kind` is what the call means by stream 0 (ask.h). Without `kTouches` only the context that
  // does the work is looked for.
  template <typename Kind, bool kTouches, typename... Arguments>
  static Participants of(const Arguments&... arguments) {
    Participants found;
    (found.count(arguments), ...);
    (found.template note<Kind, kTouches>(arguments), ...);
    if (!found.has_stream_) found.worker(/*stream=*/nullptr);
    if (!found.has_stream_) found.stream_ = Kind::name(nullptr);
    return found;
  }

  // The stream of the call, as a handle for functions without a suffix (ask.h). Valid only if
  // has_stream().
  CUstream stream() const { return stream_; }
  bool has_stream() const { return has_stream_; }
  const ContextSet& contexts() const { return contexts_; }

  // Ties every one of these contexts to every other: only the graph or the arguments decide which
  // context does which part of the work.
  void tie() const;

 private:
  // The number of an array's elements is the first argument of type size_t or unsigned. Without
  // such an argument there is one element.
  void count(size_t n) { set_count(n); }
  void count(unsigned n) { set_count(n); }
  template <typename Other>
  void count(const Other&) {}
  void set_count(size_t n) {
    if (!counted_) count_ = n;
    counted_ = true;
  }

  template <typename Kind, bool kTouches, typename Argument>
  void note(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, CUstream>) {
      worker_of_stream(Kind::name(argument));
    } else if constexpr (std::is_same_v<Argument, CUstream*>) {
      if (argument != nullptr) worker_of_stream(Kind::name(*argument));
    } else if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      worker_of_stream(Kind::name(argument->hStream));
    } else if constexpr (kTouches) {
      add(argument);
    }
  }

  void worker(CUstream stream);
  void worker_of_stream(CUstream stream);
  void add_context(CUcontext handle);

  void add(CUdeviceptr address);
  void add(const void* address) { add(reinterpret_cast<CUdeviceptr>(address)); }
  void add(void* address) { add(static_cast<const void*>(address)); }
  void add(CUcontext context) { add_context(context); }
  void add(CUgraphExec exec);
  void add(const CUdeviceptr* addresses);
  void add(CUdeviceptr* addresses) { add(static_cast<const CUdeviceptr*>(addresses)); }
  void add(const CUDA_MEMCPY2D* copy);
  void add(const CUDA_MEMCPY3D* copy);
  void add(const CUDA_MEMCPY3D_PEER* copy);
  void add(CUDA_FABRIC_COPY_BATCH_OP* copies);
  void add(CUDA_MEMCPY3D_BATCH_OP* copies);
  void add(CUmemDecompressParams* parameters);
  void add(CUstreamBatchMemOpParams* operations);
  // For types that hold no address of pooled memory and no context. CUDA arrays are never pooled.
  template <typename Other>
  void add(const Other&) {
    static_assert(std::is_integral_v<Other> || std::is_same_v<Other, CUarray> ||
                      std::is_same_v<Other, size_t*> || std::is_same_v<Other, CUmemcpyAttributes*>,
                  "say what is in an argument of this type");
  }
  template <typename Copy>
  void add_box(const Copy& copy);

  ContextSet contexts_;
  CUstream stream_ = nullptr;
  bool has_stream_ = false;
  bool counted_ = false;
  size_t count_ = 1;
};

}  // namespace cistern::shim
