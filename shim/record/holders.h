// SPDX-License-Identifier: Apache-2.0
// Who holds memory now (allocator/record/tallies.h), for the report, the out-of-memory message and
// the log of reuse. Any thread; one lock, held for nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/record/tallies.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// Call sites and ranges in words, for lines that people read. Not on the program's path: names are
// looked up in files, and the C++ library that the program has may be asked to demangle them.

// The frame that says most (allocator/record/program_code.h): "step (train.py:12)" or
// "layer+0x12 (libfoo.so)"; "0x4f12 (app) from 0x31a0 (app)" where it has no name; "an unknown call
// site" for 0. Returns `out`.
const char* describe_site(uint32_t site, char* out, size_t size);

// One level of its stack, the innermost is 0; false beyond the outermost.
bool describe_level(uint32_t site, int level, char* out, size_t size);

// "step/forward"; "no range" for 0. Returns `out`.
const char* describe_range(uint32_t range, char* out, size_t size);

void holders_allocated(const alloc::Event& event);
// The block at the address of the event is about to be freed: it goes to `block`; false if it is
// not known.
bool holders_freed(const alloc::Event& event, alloc::Event* block);
// It was not freed after all.
void holders_not_freed(const alloc::Event& block);
// The bytes that went with it.
uint64_t holders_context_ended(const alloc::Event& event);

// What the report says of them; nullptr where CISTERN_SITES is not set.
const HoldersReport* holders_report();

// "; most is held by 12.0 MiB f (a.cc), ..." for a device on which memory is out: the ten call
// sites that hold most of it; "" where they are not known. Returns `out`.
const char* describe_holders(uint32_t device, char* out, size_t size);

}  // namespace cistern::shim
