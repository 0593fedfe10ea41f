// SPDX-License-Identifier: Apache-2.0
// The source of a party of reclamation that has no memory of its own and whose work is never
// marked: the pools of pinned memory, which submit none, and the contexts without a number. No
// function of it calls the driver. Any thread.
#pragma once

#include "allocator/base/source.h"

namespace cistern::shim {

class UnmarkedSource final : public alloc::MemorySource {
  int obtain(uint64_t, uint64_t*) override { return alloc::kOutOfMemory; }
  int release_for_program(uint64_t, const alloc::OrderedFree*) override { return alloc::kNotNow; }
  int release(uint64_t) override { return alloc::kNotNow; }
  bool mark(alloc::Mark*) override { return false; }
  bool marks_may_come() override { return false; }
  alloc::MarkState query(alloc::Mark) override { return alloc::MarkState::failed; }
  void forget(alloc::Mark) override {}
};

}  // namespace cistern::shim
