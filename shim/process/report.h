// SPDX-License-Identifier: Apache-2.0
// The report at exit (CISTERN_REPORT): what the pools did, per device. Written once, by each
// process that used CUDA, without a CUDA call; to CISTERN_REPORT_FILE or to what was stderr at
// load. The caller brings the figures, which are kept in folders above this one
// (order/contexts/device_report.h).
#pragma once

#include "config/policy.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// At load: keeps a duplicate of stderr, which the program may close before it ends.
void open_report(const config::Policy& policy);

void write_report(ProcessReport process);

// In place of it, in one line; only by the first of the processes that were asked for one.
void tell_that_no_cuda_was_used();

}  // namespace cistern::shim
