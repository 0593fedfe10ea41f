// SPDX-License-Identifier: Apache-2.0
#include "shim/record/record.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "allocator/base/os.h"
#include "allocator/record/recorder.h"
#include "shim/nvtx/ranges.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/no_cancel.h"
#include "shim/process/own_file.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/sites/sites.h"

namespace cistern::shim {

namespace {

class FileSink final : public alloc::RecordingSink {
 public:
  // Never replaces a file that exists: it may be another process's.
  bool open(const char* pattern) {
    if (file_.open(pattern, Existing::keep)) return true;
    if (errno != EEXIST) return false;
    static constinit char own[PATH_MAX] = "";  // only one thread is here; its stack may be small
    snprintf(own, sizeof own, "%s.%%p", pattern);
    if (!file_.open(own, Existing::keep)) return false;
    log(config::LogLevel::kWarn,
        "the recording %s exists already; that of process %d has the process id added to its name",
        pattern, static_cast<int>(getpid()));
    return true;
  }

  bool write(const void* data, size_t bytes, uint64_t at) override {
    const bool written = file_.write_at(static_cast<const char*>(data), bytes, at);
    if (!written) error_ = errno;
    return written;
  }

  int error() const { return error_; }
  void close() { file_.close_own(); }

 private:
  OwnFile file_{};
  std::atomic<int> error_{0};
};

class OwnDefinitions final : public alloc::Definitions {
 public:
  uint32_t names() override { return shim::names().count(); }
  const char* name(uint32_t number) override { return shim::names().text(number); }
  uint32_t ranges() override { return range_count(); }
  void range(uint32_t number, uint32_t* parent, uint32_t* name) override {
    const Range range = range_of(number);
    *parent = range.parent;
    *name = range.name;
  }
  uint32_t phases() override { return phase_count(); }
  uint32_t phase_name(uint32_t number) override { return shim::phase_name(number); }
  uint32_t sites() override { return site_count(); }
  int frames(uint32_t site, alloc::Frame* out) override { return site_frames(site, out); }
};

constinit const char* pattern_ = nullptr;
constinit FileSink sink{};
constinit OwnDefinitions definitions{};
constinit alloc::Recorder recorder{};
constinit std::atomic<uint64_t> began_ns{0};

enum class File : int { not_yet, opening, open, none };
constinit std::atomic<File> file{File::not_yet};
constinit std::atomic<bool> unwritten{false};
constinit std::atomic<bool> no_thread{false};
constinit std::atomic<bool> synchronised{true};  // since the last event
constinit std::atomic<bool> said{false};         // logged that the file ends early

void describe(alloc::RecordingHead& head) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  head.began_ns = began_ns.load();
  head.began_unix_ns =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  head.process = static_cast<uint32_t>(getpid());
  if (readlink("/proc/self/exe", head.program, sizeof head.program - 1) < 0) head.program[0] = '\0';
  gethostname(head.host, sizeof head.host - 1);
  snprintf(head.policy, sizeof head.policy, "%s", policy_line());
}

bool begin() {
  static constinit alloc::RecordingHead head{};
  began_ns.store(alloc::os::now_ns() - 1);
  describe(head);
  const uint32_t flags =
      (sites_on() ? alloc::kRecordingHasSites : 0u) | (active() ? alloc::kRecordingPooled : 0u);
  if (sink.open(pattern_) && recorder.begin(&sink, &definitions, head, flags)) return true;
  log(config::LogLevel::kWarn,
      "nothing is recorded: %s cannot be written: %s; check CISTERN_RECORD", pattern_,
      open_error(errno));
  return false;
}

[[gnu::cold]] bool open_now() {
  const alloc::KeepErrno keep;
  const NoCancel whole;  // other threads wait for this one
  File seen = File::not_yet;
  if (file.compare_exchange_strong(seen, File::opening)) {
    file.store(begin() ? File::open : File::none, std::memory_order_release);
  } else {
    alloc::os::wait_while([] { return file.load(std::memory_order_acquire) == File::opening; });
  }
  return file.load(std::memory_order_acquire) == File::open;
}

bool is_open() { return file.load(std::memory_order_acquire) == File::open || open_now(); }

void say_if_cut_short() {
  if (!recorder.cut_short() || said.exchange(true)) return;
  log(config::LogLevel::kWarn,
      "the recording %s cannot be written further: %s; the part written so far can be read",
      pattern_, strerrordesc_np(sink.error()));
}

bool flush_round() {
  if (!unwritten.exchange(false)) return false;
  recorder.flush();
  say_if_cut_short();
  return true;
}

// Writes from the program's calls, if no thread could be created.
void flush_in_call(uint64_t now_ns) {
  static constinit std::atomic<uint64_t> flushed_ns{0};
  uint64_t before = flushed_ns.load(std::memory_order_relaxed);
  if (now_ns < before + 1'000'000'000) return;
  if (flushed_ns.compare_exchange_strong(before, now_ns)) flush_round();
}

constexpr BackgroundWork kFlush = {.round = flush_round,
                                   .pause_ns = [] { return uint64_t{1'000'000'000}; },
                                   .calls_driver = false,
                                   .keeps_thread = false};

}  // namespace

void open_watch(const config::Policy& policy) {
  pattern_ = policy.record.value;
  unsigned wanted = 0;
  if (policy.record.set) wanted |= kWatchRecord;
  if (policy.pool && policy.sites.set) wanted |= kWatchTallies;  // the report is about pools
  if (policy.pool && policy.print_log) wanted |= kWatchReuse;
  if (policy.pool && policy.treats_sites_differently()) wanted |= kWatchOrigin;
  const bool ranges = policy.graph_range.set && (policy.pool || policy.record.set);
  if (ranges || (policy.pool && policy.graph_arenas())) wanted |= kWatchPhases;
  watched_for.store(wanted, std::memory_order_relaxed);
}

void start_watch(const config::Policy& policy) {
  const bool stacks = watching() && policy.sites == config::Sites::kStacks;
  if (stacks || watching(kWatchReuse | kWatchOrigin)) {
    switch_sites_on();
    load_unwinder();
  }
  if (watching()) switch_ranges_on();
  if (watching(kWatchRecord | kWatchTallies | kWatchPhases)) {
    switch_phases_on(/*automatic=*/watching(kWatchTallies | kWatchPhases));
  } else if (policy.pool && policy.plan.value.mode == config::PlanMode::kAuto) {
    switch_phases_on(/*automatic=*/false);  // by markers only
  }
}

void stop_watching() {
  watched_for.store(0, std::memory_order_relaxed);
  if (file.exchange(File::none) != File::open) return;
  recorder.abandon();
  sink.close();
}

uint32_t thread_number() {
  if (this_thread.system_number == 0) this_thread.system_number = static_cast<uint32_t>(gettid());
  return this_thread.system_number;
}

uint64_t record_clock() {
  return is_open() ? alloc::os::now_ns() - began_ns.load(std::memory_order_relaxed) : 1;
}

void record(alloc::Event event) {
  const alloc::KeepErrno keep;
  if (!is_open()) return;
  if (event.time_ns == 0) event.time_ns = record_clock();
  if (event.thread == 0) {
    event.thread = thread_number();
    event.range = current_range();
    event.phase = current_phase();
  }
  recorder.put(event.thread, event);
  if (synchronised.load(std::memory_order_relaxed)) synchronised.store(false);
  if (!unwritten.load(std::memory_order_relaxed) && !unwritten.exchange(true)) {
    const NoCancel whole;
    no_thread.store(!attend(/*now=*/false, &kFlush), std::memory_order_relaxed);
  }
  if (no_thread.load(std::memory_order_relaxed)) [[unlikely]]
    flush_in_call(event.time_ns);
}

void record_synchronised() {
  if (file.load(std::memory_order_acquire) != File::open) return;
  if (synchronised.load(std::memory_order_relaxed)) return;
  record({.type = alloc::EventType::synchronised});
  synchronised.store(true);
}

void close_recording() {
  if (file.load(std::memory_order_acquire) != File::open) return;
  recorder.end();
  say_if_cut_short();
}

}  // namespace cistern::shim
