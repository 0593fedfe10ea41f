// SPDX-License-Identifier: Apache-2.0
// The program hands work to the device. What it freed before is marked first
// (allocator/reclaim/reclaim.h), so that the mark covers earlier work only: freed memory does not
// wait for what is launched after its free. Which functions these are: submissions.def. Any thread.
#pragma once

#include "shim/order/shared.h"

namespace cistern::shim {

// See before_submission().
void mark_frees_before_submission(bool may_wait_for_host);

// To be called before the driver is. `may_wait_for_host`: the work may end only once the host did
// something, such as a wait for a value; then every free is marked, while other work leaves out the
// last ones if they are few and the last mark is recent.
inline void before_submission(bool may_wait_for_host) {
  if (shared().reclaim.any_unmarked()) [[unlikely]]
    mark_frees_before_submission(may_wait_for_host);
}

}  // namespace cistern::shim
