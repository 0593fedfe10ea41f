// SPDX-License-Identifier: Apache-2.0
#include "shim/process/life.h"

#include <stdlib.h>

#include <atomic>

#include "shim/process/log.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constinit std::atomic<bool> has_started{false};
constinit std::atomic<bool> bad_settings_told{false};

void child_after_fork() {
  // The driver does not work in this process, and the pools describe the parent's memory.
  become_inactive();
  has_started.store(false, std::memory_order_release);
  for (const Part& part : parts()) {
    if (part.in_child != nullptr) part.in_child();
  }
}

bool part_works(const Part& part) { return active() || (part.without_pools && settings_hold()); }

// The only constructor of this object: it runs before main, and touches neither CUDA nor files that
// no setting names. With a second constructor, link-time optimisation joins the two, and the
// arguments are lost.
[[gnu::constructor]] void at_load(int, char**, char** envp) {
  load_settings(envp);
  const bool bad = loaded_settings().status == config::Status::kBad;
  if (bad && said_by_an_ancestor(loaded_settings().error.text)) bad_settings_told.store(true);
  for (const Part& part : parts()) {
    if (bad && part.at_bad_start != nullptr) part.at_bad_start();
    if (part_works(part) && part.at_start != nullptr) part.at_start(policy());
  }
}

void with_the_driver(int, void*) {
  for (const Part& part : parts()) {
    if (part_works(part) && part.before_driver_ends != nullptr) part.before_driver_ends();
  }
}

[[gnu::destructor]] void at_exit() {
  const bool used = has_started.load(std::memory_order_acquire);
  for (const Part& part : parts()) {
    const auto end = used ? part.at_exit : part.at_exit_without_cuda;
    if (part_works(part) && end != nullptr) end();
  }
}

}  // namespace

void end_before_the_driver() {
  static constinit std::atomic<bool> arranged{false};
  if (!arranged.exchange(true)) on_exit(with_the_driver, nullptr);
}

void tell_bad_settings() {
  if (!bad_settings_told.exchange(true)) log_line(loaded_settings().error.text);
}

void cuda_started(bool complete) {
  active();  // reads the settings if that has not happened yet
  bool expected = false;
  if (!has_started.compare_exchange_strong(expected, true)) return;
  const config::Loaded& loaded = loaded_settings();
  if (loaded.status == config::Status::kBad) return tell_bad_settings();
  // `cistern run` has already printed the warnings.
  if (!loaded.launched && log_enabled(config::LogLevel::kWarn)) {
    for (size_t i = 0; i < loaded.warning_count; ++i) log_line(loaded.warnings[i].text);
  }
  if (loaded.status == config::Status::kOk || loaded.policy.record.set || loaded.policy.sites.set) {
    at_fork(nullptr, nullptr, child_after_fork);
  }
  for (const Part& part : parts()) {
    if (part_works(part) && part.at_cuda_start != nullptr) part.at_cuda_start(policy());
  }
  if (loaded.status == config::Status::kOff) return;
  if (!complete) {
    log(config::LogLevel::kWarn,
        "this CUDA driver lacks functions the pools need; nothing is pooled; a driver for CUDA 12 "
        "or newer has them");
    become_inactive();
    return;
  }
  log(config::LogLevel::kInfo, "policy: %s", policy_line());
}

}  // namespace cistern::shim
