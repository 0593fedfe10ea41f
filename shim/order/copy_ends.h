// SPDX-License-Identifier: Apache-2.0
// When copies between contexts are done, for drivers that record no event for a whole context. With
// them, marks are made in frees and allocations only (stream_marks.h), so a copy would tie its
// contexts until the next mark of the context that copies, which may come after work that never
// ends. Instead an event is recorded on the copy's own stream, right behind it and in the same call
// of the program. So it orders nothing that the copy does not: on the legacy stream it may follow
// work that another thread submits just then, which the copy itself might have followed as well.
//
// At most kMost copies are followed at a time; the ties of others, and of those whose event cannot
// be recorded or asked, end with marks (Reclaim::only_marks_untie). An event is destroyed once it
// has passed, and ends with its context before. Any thread; the caller holds nothing.
#pragma once

#include "shim/cuda_api.h"
#include "shim/order/contexts/context_set.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

// For the time in which the ties of work that was just handed to `stream` are made; `workers` are
// all that may do it. Does nothing where whole contexts have events.
class FollowedCopy {
 public:
  FollowedCopy(const ContextSet& workers, CUstream stream);
  ~FollowedCopy();
  FollowedCopy(const FollowedCopy&) = delete;
  FollowedCopy& operator=(const FollowedCopy&) = delete;

 private:
  const NoCancel place_is_left_;
  const ContextSet& workers_;
  CUstream stream_;
  int place_;  // in the list of those that are followed; kUnfollowed, or kNotNeeded
};

// Tells Reclaim which copies are done by now. Returns at once while another thread does so.
void look_at_copies();

void reset_copy_ends_after_fork();

}  // namespace cistern::shim
