// SPDX-License-Identifier: Apache-2.0
// A thread at work in a context that need not be its own: as long as the visit lasts, a context
// that was open does not end, and its slot is no other context's. Any thread; a visit may contain
// calls to the driver, but no wait for the context's end.
#pragma once

#include "shim/order/contexts/context.h"

namespace cistern::shim {

// A template for tests of the order of the reads; use Visit.
template <typename T>
class VisitOf {
 public:
  // The order counts. Its end waits for visitors once it has said that it is closing. Read the
  // other way round, a context could be gone between the two reads, and the slot look open.
  explicit VisitOf(T& context) : context_(context) {
    context_.visitors.fetch_add(1);
    closing_ = context_.source.closing();
    handle_ = context_.handle.load();
  }
  ~VisitOf() { context_.visitors.fetch_sub(1); }
  VisitOf(const VisitOf&) = delete;
  VisitOf& operator=(const VisitOf&) = delete;

  // The context that has the slot; nullptr: none. As long as the visit lasts, no other one gets it.
  CUcontext handle() const { return handle_; }
  // Whether it may be ending: then its sums may be read, but neither its pool nor the driver asked
  // for anything of it.
  bool closing() const { return handle_ != nullptr && closing_; }
  // Whether there is one that does not end meanwhile.
  bool open() const { return handle_ != nullptr && !closing_; }

 private:
  T& context_;
  bool closing_;
  CUcontext handle_;
};

using Visit = VisitOf<Context>;

}  // namespace cistern::shim
