// SPDX-License-Identifier: Apache-2.0
#include <link.h>
#include <unistd.h>

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
