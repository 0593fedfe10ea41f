// SPDX-License-Identifier: Apache-2.0
// The figures of the report at exit (process/report_figures.h), gathered from devices and contexts.
// Makes no CUDA call; any thread.
#pragma once

#include "shim/process/report_figures.h"

namespace cistern::shim {

ProcessReport describe_process();

}  // namespace cistern::shim
