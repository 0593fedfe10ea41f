// SPDX-License-Identifier: Apache-2.0
// The recording of this process (CISTERN_RECORD): one file, begun with the first event, so that
// processes that use no CUDA leave none. Any thread; no lock of Cistern's may be held but that of a
// source's caller. A child forked later records nothing. The background thread writes what there is
// each second.
#pragma once

#include <cstdint>

#include "allocator/record/event.h"
#include "config/policy.h"

namespace cistern::shim {

void open_recording(const config::Policy& policy);

// ns since the recording began, at least 1.
uint64_t record_clock();

// The system's number of the calling thread, asked once.
uint32_t thread_number();

// Adds the event. A time of 0 is now, and a thread of 0 the calling one, in its range and phase.
void record(alloc::Event event);

// The same of a synchronisation point, unless nothing was recorded since the last one.
void record_synchronised();

void close_recording();
void abandon_recording();  // in a forked child

}  // namespace cistern::shim
