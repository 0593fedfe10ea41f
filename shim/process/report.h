// SPDX-License-Identifier: Apache-2.0
// The report at exit (CISTERN_REPORT): what the pools did, per device. Written once, by the process
// that used CUDA, without a CUDA call; to CISTERN_REPORT_FILE or to the stderr of the start.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// At load: keeps a duplicate of stderr, which the program may close before it ends.
void open_report(config::ReportFormat format, const char* file);

void write_report();

}  // namespace cistern::shim
