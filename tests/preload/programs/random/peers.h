// SPDX-License-Identifier: Apache-2.0
// Peer access that comes and goes.
#pragma once

#include "worker.h"

namespace random_work {

// One device begins to reach another one's memory, or no longer does. With other threads, theirs
// might just be using it.
inline void Worker::turn_peers() {
  const uint64_t devices = world_.primaries.size();
  if (world_.settings.threads > 1 || devices < 2) return;
  const uint64_t first = random_.below(devices);
  Place& from = world_.primaries[first];
  const Place& to = world_.primaries[(first + 1 + random_.below(devices - 1)) % devices];
  enter(from);
  if (from.reaches(to)) {
    wait_for_context();
    tally_.note("cuCtxDisablePeerAccess", cuCtxDisablePeerAccess(to.context));
  } else {
    tally_.note("cuCtxEnablePeerAccess", cuCtxEnablePeerAccess(to.context, 0));
  }
  from.reach(to, !from.reaches(to));
}

}  // namespace random_work
