// SPDX-License-Identifier: Apache-2.0
#include "shim/process/settings.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "allocator/base/os.h"
#include "shim/process/log.h"
#include "shim/process/part.h"

namespace cistern::shim {
namespace {

constexpr int kBadSettingStatus = 78;  // EX_CONFIG

constinit config::Loaded loaded{};
constinit char effective[1024] = "";
constinit bool secure = false;

enum class State : int { unread, reading, inactive, active };
constinit std::atomic<State> state{State::unread};

// Whether the process has more rights than whoever started it (AT_SECURE in getauxval(3)): that
// user chose the environment, and must neither read nor write files by it with these rights.
bool runs_with_more_rights() { return getauxval(AT_SECURE) != 0; }

// As with CISTERN_POOL=off, and no part works.
void ignore_settings() {
  config::load(nullptr, loaded);
  loaded.policy.pool.value = false;
  loaded.status = config::Status::kOff;
  secure = true;
  state.store(State::inactive, std::memory_order_release);
}

[[noreturn]] void refuse_to_start() {
  log_line(loaded.error.text);
  _exit(kBadSettingStatus);
}

}  // namespace

void load_settings(const char* const* envp) {
  State expected = State::unread;
  if (!state.compare_exchange_strong(expected, State::reading, std::memory_order_acq_rel)) {
    alloc::os::wait_while([] { return state.load(std::memory_order_acquire) == State::reading; });
    return;
  }
  if (runs_with_more_rights()) return ignore_settings();
  config::load(envp, loaded);
  const bool valid = loaded.status == config::Status::kOk;
  if (loaded.status == config::Status::kBad &&
      loaded.policy.on_error.value == config::OnError::kAbort) {
    refuse_to_start();
  }
  if (settings_hold()) config::format_policy_line(loaded, effective, sizeof effective);
  for (const Part& part : parts()) {
    const bool works = valid || (part.without_pools && settings_hold());
    if (works && part.at_load != nullptr) part.at_load(loaded.policy);
  }
  state.store(valid ? State::active : State::inactive, std::memory_order_release);
}

bool active() {
  const State now = state.load(std::memory_order_acquire);
  if (now == State::unread) [[unlikely]] {
    // Another library's constructor called a hook before the constructor in life.cc ran.
    load_settings(environ);
    return active();
  }
  return now == State::active;
}

bool settings_hold() { return !secure && loaded.status != config::Status::kBad; }

const config::Policy& policy() { return loaded.policy; }

const char* policy_line() { return effective; }

const config::Loaded& loaded_settings() { return loaded; }

void become_inactive() { state.store(State::inactive, std::memory_order_release); }

}  // namespace cistern::shim
