// SPDX-License-Identifier: Apache-2.0
// One request for which the driver or the cap refused a chunk. All memory that is not live goes
// back to the driver, in steps, until the request is served (Step). Only if no step
// helps, the program gets the driver's code.
//
// An object of the calling thread, for one request. No lock is held while the source is called.
// Other threads may be short of memory at the same time. As long as any thread released or obtained
// memory, there is another attempt.
#pragma once

#include "allocator/context_memory.h"
#include "allocator/waiting_memory.h"

namespace cistern::alloc {

class Shortage {
 public:
  Shortage(ContextMemory& memory, WaitingMemory& waiting, Request& request)
      : memory_(memory),
        waiting_(waiting),
        request_(request),
        units_(request.pooled ? Units::stay : Units::go) {}

  // Tries to serve the request, and returns the source's code. Reports the outcome to the ledger
  // and the source.
  int resolve();
  // Tries only free memory in other threads' chunks, before the source is asked: for a request soon
  // after a shortage. If it fails it returns false and reports nothing.
  bool resolve_elsewhere();

 private:
  using Units = ContextMemory::Units;

  void tell();
  int find_memory();
  int take_smaller_chunk();
  int take_what_becomes_clean(bool waits);
  int take_fresh_of_any_size();
  bool take_from_other_chunks();
  bool take_from_anywhere();
  bool take_clean();
  uint64_t changes() const;
  uint64_t patience_ns() const;

  ContextMemory& memory_;
  WaitingMemory& waiting_;
  Request& request_;
  const ContextMemory::Units units_;  // stay for a pooled request: clean units serve it
  bool looked_elsewhere_ = false;
  Step step_ = Step::clean;  // being tried, or the one that served the request
};

}  // namespace cistern::alloc
