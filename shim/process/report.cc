// SPDX-License-Identifier: Apache-2.0
#include "shim/process/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shim/process/advice.h"
#include "shim/process/frameworks.h"
#include "shim/process/log.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

using config::ReportFormat;

constinit ReportFormat format_ = ReportFormat::kNone;
constinit const char* file_ = nullptr;
constinit OwnFile output_{};
constinit Writer writer{};

}  // namespace

void open_report(const config::Policy& policy) {
  format_ = policy.report.value;
  file_ = policy.report_file.value;
  if (format_ == ReportFormat::kNone || file_ != nullptr) return;
  output_.adopt(STDERR_FILENO);
}

void write_report(const ProcessReport& process) {
  if (format_ == ReportFormat::kNone) return;
  bool written = file_ == nullptr || output_.open(file_, O_TRUNC);
  if (written) {
    writer.begin(&output_);
    const Advice advice = advise(process, policy(), frameworks_that_pool());
    format_ == ReportFormat::kJson ? compose_json(writer, process, advice)
                                   : compose_text(writer, process, advice);
    written = writer.end();
  }
  // Where stderr takes no report, it takes no line that says so.
  if (written || (file_ == nullptr && policy().log_file.value == nullptr)) return;
  log(config::LogLevel::kWarn, "the report cannot be written to %s: %s; check CISTERN_REPORT_FILE",
      file_ == nullptr ? "stderr" : file_, strerrordesc_np(errno));
}

}  // namespace cistern::shim
