// SPDX-License-Identifier: Apache-2.0
// The program submits work to the device. From then on frees have something to wait for. The thread
// that submitted it, and whether the host sees it, decide how they wait (barrier/work.h). Freed
// memory is marked before the submission (allocator/reclaim/reclaim.h), so that the mark covers
// only earlier work: freed memory does not wait for work launched after its free. Which functions
// these are: submissions.def. Any thread.
#pragma once

#include "shim/order/barrier/work.h"
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

}  // namespace cistern::shim
