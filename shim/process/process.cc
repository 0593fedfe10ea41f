// SPDX-License-Identifier: Apache-2.0
#include "shim/process/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "config/load.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/kinds/fill.h"
#include "shim/kinds/memory_pools.h"
#include "shim/kinds/physical.h"
#include "shim/kinds/scratch.h"
#include "shim/order/capture_gate.h"
#include "shim/order/context.h"
#include "shim/order/graphs.h"
#include "shim/order/reaper.h"
#include "shim/process/log.h"
#include "shim/process/report.h"

namespace cistern::shim {
namespace {

constexpr int kBadSettingStatus = 78;  // EX_CONFIG

constinit config::Loaded loaded{};
constinit char effective[1024] = "";

enum class State : int { unread, reading, inactive, active };
constinit std::atomic<State> state{State::unread};
constinit std::atomic<bool> started{false};

[[noreturn]] void refuse_to_start() {
  log_line(loaded.error.text);
  _exit(kBadSettingStatus);
}

void read_settings(const char* const* envp) {
  State expected = State::unread;
  if (!state.compare_exchange_strong(expected, State::reading, std::memory_order_acq_rel)) {
    while (state.load(std::memory_order_acquire) == State::reading) {
    }
    return;
  }
  config::load(envp, loaded);
  const config::Policy& p = loaded.policy;
  if (loaded.status == config::Status::kBad) {
    if (p.on_error.value == config::OnError::kAbort) refuse_to_start();
  } else if (loaded.status == config::Status::kOk) {
    open_log(p.log.value, p.log_file.value);
    config::format_policy_line(loaded, effective, sizeof effective);
    open_report(p.report.value, p.report_file.value);
    open_scratch(p);
    open_fill(p);
    keep_charges(p.any_cap() || p.report.value != config::ReportFormat::kNone);
  }
  const bool ok = loaded.status == config::Status::kOk;
  state.store(ok ? State::active : State::inactive, std::memory_order_release);
}

void child_after_fork() {
  // The driver does not work in this process; what the pools know is the parent's.
  state.store(State::inactive, std::memory_order_release);
  started.store(false, std::memory_order_release);
  capture_gate().reset_after_fork();
  reset_graphs_after_fork();
  reset_contexts_after_fork();
  reset_charges_after_fork();
  reset_memory_pools_after_fork();
  reset_physical_after_fork();
  reset_reaper_after_fork();
}

// The object's one constructor: runs before main, touches neither CUDA nor files that no setting
// names.
[[gnu::constructor]] void at_load(int, char**, char** envp) { read_settings(envp); }

[[gnu::destructor]] void at_exit() {
  if (!active() || !cuda_used()) return;
  stop_reaper();
  write_report();
}

}  // namespace

bool active() {
  const State now = state.load(std::memory_order_acquire);
  if (now == State::unread) [[unlikely]] {
    // Another library's constructor reached us before our own ran.
    read_settings(environ);
    return active();
  }
  return now == State::active;
}

const config::Policy& policy() { return loaded.policy; }

const char* policy_line() { return effective; }

void cuda_started() {
  active();  // settings are read by now
  bool expected = false;
  if (!started.compare_exchange_strong(expected, true)) return;
  if (loaded.status == config::Status::kOff) return;
  if (loaded.status == config::Status::kBad) {
    log_line(loaded.error.text);
    return;
  }
  pthread_atfork(nullptr, nullptr, child_after_fork);
  // The launcher has said them already, on its own stderr.
  if (!loaded.launched && log_enabled(config::LogLevel::kWarn)) {
    for (size_t i = 0; i < loaded.warning_count; ++i) log_line(loaded.warnings[i].text);
  }
  if (!driver().complete) {
    log(config::LogLevel::kWarn,
        "this CUDA driver lacks functions the pools need; nothing is pooled; a driver for CUDA 12 "
        "or newer has them");
    state.store(State::inactive, std::memory_order_release);
    return;
  }
  log(config::LogLevel::kInfo, "policy: %s", effective);
}

bool cuda_used() { return started.load(std::memory_order_acquire); }

}  // namespace cistern::shim
