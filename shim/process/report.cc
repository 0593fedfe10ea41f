// SPDX-License-Identifier: Apache-2.0
// When and where the report is written, and the advice at its end. Each process that used CUDA
// writes the report once, at exit: to the file of CISTERN_REPORT_FILE, which is opened only then,
// else to what was stderr at load. The advice follows from the report's figures. report_process.cc
// puts the report together.
#include <link.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "allocator/base/os.h"
#include "shim/process/log.h"
#include "shim/process/own_file.h"
#include "shim/process/report_figures.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// --- advice ---

namespace {

// A framework with its own pool asks only for what that pool lacks, and Cistern's pool rarely has
// it either. If Cistern has memory ready for more than half of the requests, there is hardly
// another pool in front.
constexpr uint64_t kServedShare = 2;

// cudaMalloc and cudaFree take the driver about 0.1 ms together: fewer than a thousand take a tenth
// of a second in a whole run.
constexpr uint64_t kManyCalls = 1000;
// Driver calls left of a hundred: 10 to 15 in the demo's training run, 23 to 30 if sizes change all
// the time (README, "Which policy").
constexpr uint64_t kCallsShare = 5;
// Memory that was obtained and is kept is growth, which no setting avoids.
constexpr uint64_t kReturnedShare = 2;
// A program that is short of memory returns memory that it would otherwise have kept.
constexpr uint64_t kShortShare = 10;
// Few sizes, which repeat, set at most this many bits.
constexpr int kFewSizes = 8;

// A single free waits at most this long before the bound gives way (waiting_memory.cc). If the
// waits of a whole run add up to less, they are not worth a line.
constexpr uint64_t kHeldBackNs = 1'000'000'000;

// The waits of frees are worth a line if they take at least this share of the run, and this long in
// all. Runs differ by a hundredth anyway, and a short run has nothing to gain.
constexpr uint64_t kFreeWaitsShare = 100, kFreeWaitsNs = 100'000'000;

void hint_limit(const DeviceReport& device, const config::Policy& policy, Advice& out) {
  const uint64_t refused = device.ledger->refused_by_cap.get();
  if (refused == 0) return;
  const auto ordinal = static_cast<unsigned>(device.ordinal);
  char name[32] = "FLAGS_gpu_memory_limit_mb";
  if (ordinal < config::kMaxDevices && policy.gpu_limit_of[ordinal].set) {
    snprintf(name, sizeof name, "CISTERN_GPU_LIMIT_%u", ordinal);
  } else if (policy.gpu_limit.set) {
    snprintf(name, sizeof name, "CISTERN_GPU_LIMIT");
  }
  out.hint("limit",
           "the limit of %.1f MiB refused %lu calls on device %u; a higher %s would allow them",
           mib(device.cap->limit()), refused, ordinal, name);
}

void hint_pinned_limit(const PinnedReport& pinned, Advice& out) {
  const uint64_t refused = pinned.ledger->refused_by_cap.get();
  if (refused == 0) return;
  out.hint("limit",
           "the limit of %.1f MiB refused %lu calls for pinned memory; a higher "
           "FLAGS_fraction_of_cuda_pinned_memory_to_use would allow them",
           mib(pinned.limit_bytes), refused);
}

void hint_ipc(const IpcReport& ipc, Advice& out) {
  if (ipc.unanswered != 0) {
    out.hint("ipc",
             "%lu IPC handles could not be opened: their process did not give the block (the log "
             "says why); CISTERN_ONLY_SIZES in that process keeps their size out of chunks",
             ipc.unanswered);
  } else if (ipc.exported != 0 && ipc.answered == 0) {
    out.hint(
        "ipc",
        "%lu IPC handles of blocks inside chunks or in static memory were made, and none was "
        "opened; run the other process under Cistern too (CISTERN_POOL=off is enough), or keep "
        "their size out of chunks with CISTERN_ONLY_SIZES here",
        ipc.exported);
  }
}

void hint_bound(const DeviceReport& device, Advice& out) {
  const alloc::Ledger& l = *device.ledger;
  if (device.garbage != nullptr && device.garbage->flushed_when_short.get() != 0) {
    out.hint("bound",
             "memory ran short on device %d while %.1f MiB of freed memory was held back; "
             "FLAGS_eager_delete_tensor_gb=0 holds none back",
             device.ordinal, mib(device.garbage->flushed_when_short.get()));
  } else if (l.held_back_ns.get() >= kHeldBackNs) {
    out.hint("bound",
             "frees on device %d waited %lu times, %.1f s in all: more freed memory waited for "
             "earlier work than is allowed (256 MiB, or a tenth of the live memory); compare with "
             "CISTERN_POOL=off, since the driver alone may wait at each free",
             device.ordinal, l.held_back.get(), static_cast<double>(l.held_back_ns.get()) / 1e9);
  }
}

// No hint if CISTERN_FREE_SYNC is set: whoever sets it has read what it does.
void hint_free_waits(const ProcessReport& process, const config::Policy& policy, Advice& out) {
  if (policy.free_sync.set || process.frees == nullptr) return;
  const WaitSum frees = waits_of_frees(*process.frees), order = waits_for_order(*process.frees);
  const uint64_t ns = frees.ns + order.ns;
  const uint64_t waits = frees.waits + order.waits;
  if (ns < kFreeWaitsNs || ns < process.ran_ns / kFreeWaitsShare) return;
  out.hint("free_waits",
           "CISTERN_FREE_SYNC=false would have saved up to %.0f ms (%lu waits); use it only if the "
           "program synchronises by itself before it reads results after a cudaFree, and before "
           "one stream uses what another one wrote",
           static_cast<double>(ns) / 1e6, waits);
}

// Memory returned because it was idle for long was requested by FLAGS_free_idle_memory.
uint64_t returned_unasked(const alloc::Ledger& l) {
  const uint64_t aged = by(alloc::WorkedBy::call, l.aged) + by(alloc::WorkedBy::background, l.aged);
  const uint64_t released = l.released.get();
  return released > aged ? released - aged : 0;
}

// Only for the default strategy, which has a budget for idle memory.
void hint_sizes(const DeviceReport& device, const config::Policy& policy, Advice& out) {
  const alloc::Ledger& l = *device.ledger;
  const uint64_t taken = l.obtained.get();
  if (device.strategy != alloc::StrategyKind::on_demand || policy.free_idle_memory.set) return;
  if (taken < kManyCalls || l.shortages.get() * kShortShare > taken) return;
  if (driver_calls(device) * kCallsShare < driver_calls_without(device)) return;
  if (returned_unasked(l) * kReturnedShare < taken) return;
  const bool few = std::popcount(l.sizes_taken.load(std::memory_order_relaxed)) <= kFewSizes;
  out.hint("sizes", "%lu of %lu allocations on device %d went to the driver, in %s; %s", taken,
           device.allocations, device.ordinal,
           few ? "few sizes that had been returned to it"
               : "many sizes, while other sizes were returned to it",
           few ? "FLAGS_free_idle_memory=false keeps idle memory"
               : "FLAGS_allocator_strategy=auto_growth with FLAGS_auto_growth_chunk_size_in_mb=64 "
                 "cuts them from chunks that stay; GE_USE_STATIC_MEMORY=3 takes least memory");
}

}  // namespace

void Frameworks::add(const config::Framework* framework) {
  for (const config::Framework* known : list()) {
    if (strcmp(known->name, framework->name) == 0) return;
  }
  if (count_ < kMost) all_[count_++] = framework;
}

void Advice::hint(const char* about, const char* format, ...) {
  if (count_ == kMost) return;
  Hint& next = hints_[count_++];
  next.about = about;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(next.text, sizeof next.text, format, arguments);
  va_end(arguments);
}

Advice advise(const ProcessReport& process, const config::Policy& policy,
              const Frameworks& loaded) {
  Advice advice;
  for_each_device(process, [&](const DeviceReport& d) { hint_limit(d, policy, advice); });
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) {
    hint_pinned_limit(pinned, advice);
  }
  hint_ipc(process.ipc, advice);
  for_each_device(process, [&](const DeviceReport& d) { hint_bound(d, advice); });
  hint_free_waits(process, policy, advice);
  bool asked = false, other_pool = false;
  for_each_device(process, [&](const DeviceReport& d) {
    asked |= d.allocations != 0;
    other_pool |= d.allocations != 0 && hits(d) * kServedShare <= d.allocations;
  });
  if (other_pool || !asked) advice.frameworks = loaded;
  // If another pool is in front, a different policy of Cistern's would not help.
  if (advice.frameworks.list().empty()) {
    for_each_device(process, [&](const DeviceReport& d) { hint_sizes(d, policy, advice); });
  }
  return advice;
}

// --- the report's file, and its end ---

namespace {

int look(dl_phdr_info* file, size_t /*size*/, void* data) {
  if (file->dlpi_name == nullptr) return 0;
  const config::Framework* framework = config::framework_of(file->dlpi_name);
  if (framework == nullptr) return 0;
  const char* value = framework->variable != nullptr ? getenv(framework->variable) : nullptr;
  if (config::pools_itself(*framework, value)) static_cast<Frameworks*>(data)->add(framework);
  return 0;
}

// The loaded frameworks that pool device memory themselves (config/known.h), unless the
// environment turns that off. Read once, at exit, since programs set the environment as they run.
// Reads only the loader's list and the environment.
Frameworks frameworks_that_pool() {
  Frameworks found;
  dl_iterate_phdr(look, &found);
  return found;
}

using config::ReportFormat;

constinit ReportFormat format_ = ReportFormat::kNone;
constinit const char* report_file = nullptr;
constinit OwnFile output_{};
constinit Writer report_writer{};
constinit uint64_t loaded_at_ns = 0;
constinit pid_t first_process = 0;  // this process, if no ancestor reports; else 0

}  // namespace

Run::Run() {
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) program[0] = '\0';
  gethostname(host, sizeof host - 1);
  // gmtime_r() takes a lock and reads the time zone's file, though UTC needs neither. exit() may be
  // called by a signal handler that interrupted gmtime_r() in the same thread.
  const std::chrono::sys_seconds now{std::chrono::seconds{time(nullptr)}};
  const auto today = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date{today};
  const std::chrono::hh_mm_ss clock{now - today};
  snprintf(ended, sizeof ended, "%d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
           static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
           static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
           static_cast<int>(clock.seconds().count()));
}

void open_report(const config::Policy& policy) {
  format_ = policy.report.value;
  report_file = policy.report_file.value;
  loaded_at_ns = alloc::os::now_ns();
  if (format_ == ReportFormat::kNone) return;
  if (!an_ancestor_reports()) first_process = getpid();
  if (report_file != nullptr) return;
  output_.adopt(STDERR_FILENO);
}

// Does not touch the report file: a child that uses CUDA may have written its report there.
void tell_that_no_cuda_was_used() {
  if (first_process == 0 || first_process != getpid()) return;
  const Run run;
  char line[sizeof run.program + 128];
  snprintf(line, sizeof line,
           "cistern: info: no report of process %d, %s; it used no CUDA; the programs that it "
           "started have their own",
           static_cast<int>(first_process), run.program);
  if (report_file != nullptr) return log_line(line);
  const size_t length = strlen(line);
  line[length] = '\n';
  output_.write(line, length + 1);
}

void write_report(ProcessReport process) {
  if (format_ == ReportFormat::kNone) return;
  process.ran_ns = alloc::os::now_ns() - loaded_at_ns;
  bool written = report_file == nullptr || output_.open(report_file, Existing::truncate);
  if (written) {
    report_writer.begin(&output_, format_ == ReportFormat::kJson);
    compose(report_writer, process, advise(process, policy(), frameworks_that_pool()));
    written = report_writer.end();
  }
  // If stderr cannot take the report, it cannot take this warning either.
  if (written || (report_file == nullptr && policy().log_file.value == nullptr)) return;
  log(config::LogLevel::kWarn, "the report cannot be written to %s: %s; check CISTERN_REPORT_FILE",
      report_file == nullptr ? "stderr" : report_file, open_error(errno));
}

}  // namespace cistern::shim
