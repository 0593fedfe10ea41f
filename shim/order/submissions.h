// SPDX-License-Identifier: Apache-2.0
// The program hands work to the device. Frees have something to wait for from then on
// (contexts/seen_empty.h). What waits for earlier work is marked first
// (allocator/reclaim/reclaim.h), so that the mark covers that work only: freed memory does not wait
// for what is launched after its free. Which functions these are: submissions.def. Any thread.
#pragma once

#include "shim/order/contexts/seen_empty.h"
#include "shim/order/shared.h"

namespace cistern::shim {

// See note_submission() and before_submission().
void note_first_submission();
void mark_frees_before_submission(bool may_wait_for_host);

// To be called before and after each driver call that submits work or records an event. Before it,
// since the work may begin and tell another thread before the call is over. After it, since a
// synchronisation that began after the first call may have been over before the driver got the
// work. (Then a thread that learns of the work from the device itself may find the context empty
// until the second call.)
inline void note_submission() {
  if (contexts_seen_empty.load(std::memory_order_acquire) != 0) [[unlikely]]
    note_first_submission();
}

class SubmissionScope {
 public:
  SubmissionScope() { note_submission(); }
  ~SubmissionScope() { note_submission(); }
  SubmissionScope(const SubmissionScope&) = delete;
  SubmissionScope& operator=(const SubmissionScope&) = delete;
};

// To be called before the driver is, and note_submission() once more after it. `may_wait_for_host`:
// the work may end only once the host did something, such as a wait for a value; then every free is
// marked, while other work leaves out the last ones if they are few and the last mark is recent.
inline void before_submission(bool may_wait_for_host) {
  note_submission();
  if (shared().reclaim.any_unmarked()) [[unlikely]]
    mark_frees_before_submission(may_wait_for_host);
}

}  // namespace cistern::shim
