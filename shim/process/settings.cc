// SPDX-License-Identifier: Apache-2.0
#include "shim/process/settings.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"
#include "config/load.h"
#include "shim/process/log.h"

namespace cistern::shim {

// --- settings ---

namespace {

constexpr int kBadSettingStatus = 78;  // EX_CONFIG

constinit config::Loaded loaded{};
constinit char effective[1024] = "";
constinit bool secure = false;

enum class Settings : int { unread, reading, inactive, active };
constinit std::atomic<Settings> settings_state{Settings::unread};

// Whether the process has more rights than the user who started it (AT_SECURE in getauxval(3)).
// That user chose the environment, and must not read or write files with these rights through it.
bool runs_with_more_rights() { return getauxval(AT_SECURE) != 0; }

// The same as CISTERN_POOL=off; in addition no part works.
void ignore_settings() {
  config::load(nullptr, loaded);
  loaded.policy.pool.value = false;
  loaded.status = config::Status::kOff;
  secure = true;
  settings_state.store(Settings::inactive, std::memory_order_release);
}

[[noreturn]] void refuse_to_start() {
  log_line(loaded.error.text);
  _exit(kBadSettingStatus);
}

}  // namespace

void load_settings(const char* const* envp) {
  Settings expected = Settings::unread;
  if (!settings_state.compare_exchange_strong(expected, Settings::reading,
                                              std::memory_order_acq_rel)) {
    alloc::os::wait_while(
        [] { return settings_state.load(std::memory_order_acquire) == Settings::reading; });
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
  settings_state.store(valid ? Settings::active : Settings::inactive, std::memory_order_release);
}

bool active() {
  const Settings now = settings_state.load(std::memory_order_acquire);
  if (now == Settings::unread) [[unlikely]] {
    // Another library's constructor called a hook before at_load() ran.
    load_settings(environ);
    return active();
  }
  return now == Settings::active;
}

bool settings_hold() { return !secure && loaded.status != config::Status::kBad; }

const config::Policy& policy() { return loaded.policy; }

const char* policy_line() { return effective; }

const config::Loaded& loaded_settings() { return loaded; }

void become_inactive() { settings_state.store(Settings::inactive, std::memory_order_release); }

// --- messages for all descendants ---

namespace {

constexpr int kMostAncestors = 64;
constexpr size_t kMostEntries = size_t{1} << 16;

// Mapped directly, since malloc may not be ready. Pages are used once they are touched.
struct Room {
  char text[size_t{4} << 20];
  const char* entries[kMostEntries];
  config::Loaded loaded;
};

// Reads /proc/PID/`file` into the room's text.
size_t read_file(int process, const char* file, Room& room) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", process, file);
  return alloc::os::read_file(path, room.text, sizeof room.text);
}

// The line is "PID (NAME) STATE PARENT ..."; NAME may contain any character.
int parent_of(int process, Room& room) {
  if (read_file(process, "stat", room) == 0) return 0;
  const char* after = strrchr(room.text, ')');
  if (after == nullptr || strlen(after) < 5) return 0;
  const char* parent = after + 4;
  return static_cast<int>(alloc::os::read_number(&parent));
}

bool is_mapped(const char* object, int process, Room& room) {
  return read_file(process, "maps", room) != 0 && strstr(room.text, object) != nullptr;
}

void load_settings_of(int process, Room& room) {
  const size_t length = read_file(process, "environ", room);
  size_t count = 0;
  for (size_t at = 0; at < length && count + 1 < kMostEntries; at += strlen(room.text + at) + 1) {
    room.entries[count++] = room.text + at;
  }
  room.entries[count] = nullptr;
  config::load(room.entries, room.loaded);
}

// Whether fits() is true for any ancestor process that has this object mapped.
template <typename Fits>
bool any_ancestor(Fits fits) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&said_by_an_ancestor), &self) == 0) return false;
  void* memory = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  Room& room = *static_cast<Room*>(memory);
  bool found = false;
  int process = getppid();
  for (int i = 0; i < kMostAncestors && process > 1 && !found; ++i) {
    if (is_mapped(self.dli_fname, process, room)) {
      load_settings_of(process, room);
      found = fits(process, self.dli_fname, room);
    }
    process = parent_of(process, room);
  }
  munmap(memory, sizeof(Room));
  return found;
}

}  // namespace

bool said_by_an_ancestor(const char* line) {
  return any_ancestor([&](int process, const char* object, Room& room) {
    return room.loaded.status == config::Status::kBad &&
           strcmp(room.loaded.error.text, line) == 0 &&
           (strstr(object, "-device") == nullptr || is_mapped("/libcuda.so", process, room));
  });
}

bool an_ancestor_reports() {
  return any_ancestor([](int, const char*, const Room& room) {
    return room.loaded.status == config::Status::kOk &&
           room.loaded.policy.report.value != config::ReportFormat::kNone;
  });
}

// --- the life of the process ---

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
  const config::Loaded& settings = loaded_settings();
  if (settings.status == config::Status::kBad) return tell_bad_settings();
  // `cistern run` has already printed the warnings.
  if (!settings.launched && log_enabled(config::LogLevel::kWarn)) {
    for (size_t i = 0; i < settings.warning_count; ++i) log_line(settings.warnings[i].text);
  }
  if (settings.status == config::Status::kOk || settings.policy.record.set ||
      settings.policy.sites.set) {
    at_fork(nullptr, nullptr, child_after_fork);
  }
  for (const Part& part : parts()) {
    if (part_works(part) && part.at_cuda_start != nullptr) part.at_cuda_start(policy());
  }
  if (settings.status == config::Status::kOff) return;
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
