// SPDX-License-Identifier: Apache-2.0
//
// The words of the watcher's findings: what happened, both sides, and the lives of the bytes.
// Caller holds exec_mutex().
#pragma once

#include <cstdint>

#include "table/calls.h"
#include "watch/access.h"
#include "watch/report.h"
#include "watch/shadow.h"

namespace simcuda {

// `address` is where the later touch sees the first byte in conflict.
void report_race(Finding kind, const Conflict& conflict, const Record& later, uint64_t address,
                 const Memory& memory);

void report_access(Finding kind, const Verdict& verdict, const Access& access, const Operation& by,
                   const Memory& memory);

// A free of memory, or of a pool's block, that does not begin there.
void report_free(Call call, uint64_t address, const Memory& memory);
void report_block_end(uint64_t address, const Memory& memory);

// Work that is over by the promise is under way (watch/oracle.h), in or after this call of the
// program's, which freed this or, 0, did not; and work that holds up what is not promised to come
// after it.
void report_unfinished(const Operation& work, const char* told, uint64_t freed);
void report_added(const Operation& work, const char* who, Call call, const char* told);

void report_leak(const Life& life);

}  // namespace simcuda
