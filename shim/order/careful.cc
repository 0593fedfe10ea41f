// SPDX-License-Identifier: Apache-2.0
#include "shim/order/careful.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/log.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

enum class State : uint8_t { trusting, becoming, careful };

constinit std::atomic<State> careful_state{State::trusting};
constinit char reason[160] = "";  // written by the thread that changed the state
constinit std::atomic<State> work_state{State::trusting};
constinit std::atomic<bool> work_unseen{false};
constinit char work_reason[160] = "";

void unknown_function(Unknown how, const char* name) {
  switch (how) {
    case Unknown::called:
      return become_careful("the program calls %s, which Cistern does not know", name);
    case Unknown::linked:
      return become_careful("the program is linked with %s, which Cistern does not know", name);
    case Unknown::bare:
      return become_careful(
          "the program has a pointer to %s, which Cistern does not know, and calls of it are "
          "unseen",
          name);
    case Unknown::out_of_sight:
      return work_goes_unseen("the program calls %s, which submits work that Cistern cannot see",
                              name);
    case Unknown::linked_out_of_sight:
      return work_goes_unseen(
          "the program is linked with %s, which submits work that Cistern cannot see", name);
  }
}

}  // namespace

// Threads that come here meanwhile continue only once the gate is closed: their calls may be
// unknown as well.
void become_careful(const char* format, ...) {
  State expected = State::trusting;
  if (!careful_state.compare_exchange_strong(expected, State::becoming)) {
    alloc::os::wait_while([] { return careful_state.load() == State::becoming; });
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  shared().reclaim.freeze();
  end_seen_empty();           // from here on no context is found empty
  capture_gate().announce();  // and never withdrawn
  pay_debts();
  careful_state.store(State::careful);
  log(config::LogLevel::kInfo,
      "%s; from now on the driver serves all requests for memory, as without Cistern", reason);
}

// Sets work_unseen before it forgets empty contexts: a context that is found idle meanwhile is
// forgotten as well.
void work_goes_unseen(const char* format, ...) {
  State expected = State::trusting;
  if (!work_state.compare_exchange_strong(expected, State::becoming)) {
    alloc::os::wait_while([] { return work_state.load() == State::becoming; });
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(work_reason, sizeof work_reason, format, arguments);
  va_end(arguments);
  work_unseen.store(true);
  streams().give_up();
  end_seen_empty();
  pay_debts();
  work_state.store(State::careful);
  log(config::LogLevel::kInfo, "%s; from now on frees wait for all work, as without Cistern",
      work_reason);
}

bool is_work_unseen() { return work_unseen.load(std::memory_order_seq_cst); }

const char* why_work_is_unseen() {
  return work_state.load(std::memory_order_acquire) == State::careful ? work_reason : nullptr;
}

bool careful() { return careful_state.load(std::memory_order_relaxed) == State::careful; }

const char* why_careful() {
  return careful_state.load(std::memory_order_acquire) == State::careful ? reason : nullptr;
}

void watch_unknown_functions(const config::Policy&) { tell_before_unknown(unknown_function); }

void tell_unknown_functions() {
  static constinit std::atomic<bool> told{false};
  if (!active()) return;
  const size_t unknown = unknown_functions();
  if (unknown != 0 && !told.exchange(true)) {
    log(config::LogLevel::kInfo,
        "this driver is newer than Cistern: %zu functions are unknown; once a program calls one, "
        "the driver serves all its requests",
        unknown);
  }
  look_for_unknown_links();
}

}  // namespace cistern::shim
