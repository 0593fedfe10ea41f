// SPDX-License-Identifier: Apache-2.0
// Events of the fake driver (fake_shim.h).
#pragma once

#include <set>
#include <vector>

#include "shim/cuda_api.h"

namespace cistern::test {

// A driver whose events pass when the test says so.
struct FakeEvents {
  // All fakes as at the start, but with these events and a stack of contexts.
  FakeEvents();

  enum class State { pending, passed, failed };
  struct Event {
    State state;
    CUstream stream;  // that it was recorded on last
    CUcontext owner, recorded_in;
  };
  std::vector<Event> all;
  std::vector<CUstream> recorded;  // by each cuEventRecord that succeeded, in turn
  std::set<CUstream> refused;      // streams on which nothing can be recorded
  int creations_left = 1 << 20;
  bool push_fails = false;
  std::vector<CUcontext> stack;
  int calls = 0;  // to functions that a capture forbids

  Event& of(CUevent event) { return all[reinterpret_cast<uintptr_t>(event) - 1]; }
  void set(CUstream of, State state) {
    for (Event& event : all) {
      if (event.stream == of) event.state = state;
    }
  }
  void pass(CUstream of) { set(of, State::passed); }
  void pass_all() {
    for (Event& event : all) event.state = State::passed;
  }
};

}  // namespace cistern::test
