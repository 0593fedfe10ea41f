// SPDX-License-Identifier: Apache-2.0
#include "shim/process/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shim/process/log.h"
#include "shim/process/report_parts.h"

namespace cistern::shim {
namespace {

using config::ReportFormat;

constinit ReportFormat format_ = ReportFormat::kNone;
constinit const char* file_ = nullptr;
constinit OwnFile output_{};
constinit Writer writer{};

}  // namespace

Summary summarise(int device) {
  Device& d = device_state(device);
  const alloc::Ledger& l = d.ledger;
  uint64_t allocations = d.past_allocations.get(), frees = d.past_frees.get();
  Summary s{};
  for_each_context([&](Context& c) {
    if (c.device != device) return;
    allocations += c.pool.allocations();
    frees += c.pool.frees();
    s.usage += c.pool.usage();
  });
  s.requests = allocations;
  s.hits = allocations > l.obtained.get() ? allocations - l.obtained.get() : 0;
  s.driver_calls = l.obtained.get() + l.refused.get() + l.released.get() + l.lost.get();
  s.driver_calls_without = allocations + frees;
  return s;
}

void open_report(ReportFormat format, const char* file) {
  format_ = format;
  file_ = file;
  if (format == ReportFormat::kNone || file != nullptr) return;
  output_.adopt(STDERR_FILENO);
}

void write_report() {
  if (format_ == ReportFormat::kNone) return;
  format_ == ReportFormat::kJson ? compose_json(writer) : compose_text(writer);
  if (file_ != nullptr && !output_.open(file_, O_TRUNC)) {
    log(config::LogLevel::kWarn,
        "the report cannot be written to %s: %s; check CISTERN_REPORT_FILE", file_,
        strerrordesc_np(errno));
  }
  writer.write_to(output_);
}

}  // namespace cistern::shim
