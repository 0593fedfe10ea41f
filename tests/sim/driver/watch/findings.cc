// SPDX-License-Identifier: Apache-2.0
#include "watch/findings.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "exec/context.h"

namespace simcuda {
namespace {

__attribute__((format(printf, 1, 2))) std::string print(const char* format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return text;
}

std::string stretch(uint64_t address, uint64_t bytes) {
  return print("0x%" PRIx64 "+%" PRIu64, address, bytes);
}

const char* verb(Touch touch) {
  return touch == Touch::kRead ? "read" : touch == Touch::kWrite ? "write" : "update";
}

std::string name_of(const Operation& by) {
  return by.kernel == nullptr ? info(by.call).symbol
                              : print("%s(%s)", info(by.call).symbol, by.kernel);
}

std::string line_of(const char* role, const Operation& by, const char* what) {
  const std::string where = by.stream_id == 0 ? "the host"
                                              : print("stream %" PRIu64 " of context %" PRIu64,
                                                      by.stream_id, by.context_id);
  return print("  %s: %s by %s #%" PRIu64 " on %s, thread %" PRIu64 "\n", role, what,
               name_of(by).c_str(), by.number, where.c_str(), by.thread);
}

std::string by_this_thread() { return print("  by thread %" PRIu64 "\n", thread_number()); }

std::string history_of(uint64_t address, uint64_t bytes, const Memory& memory) {
  std::string text;
  memory.blocks.describe(address, bytes, "block", text);
  memory.allocations.describe(address, bytes, "memory", text);
  return text;
}

// Why a free is refused.
const char* why_not_freed(uint64_t address, const Lives& lives) {
  if (lives.holding(address) != nullptr) return "is inside it, not its start";
  const Life* before = lives.ended_holding(address);
  return before != nullptr && before->address == address ? "has been freed before"
                                                         : "was never allocated";
}

}  // namespace

void report_race(Finding kind, const Conflict& conflict, const Record& later, uint64_t address,
                 const Memory& memory) {
  const Record& first = conflict.earlier;
  const std::string what =
      stretch(address, conflict.bytes) + print(": %s by %s is not ordered with %s by %s",
                                               verb(later.touch), name_of(*later.by).c_str(),
                                               verb(first.touch), name_of(*first.by).c_str());
  report(kind, what,
         line_of("first", *first.by, verb(first.touch)) +
             line_of("second", *later.by, verb(later.touch)) +
             history_of(address, conflict.bytes, memory));
}

void report_access(Finding kind, const Verdict& verdict, const Access& access, const Operation& by,
                   const Memory& memory) {
  const std::string what = stretch(access.address, access.bytes) +
                           print(": %s by %s touches %s, at 0x%" PRIx64, verb(access.touch),
                                 name_of(by).c_str(), verdict.wrong, verdict.address);
  report(kind, what,
         line_of("by", by, verb(access.touch)) + history_of(access.address, access.bytes, memory));
}

void report_free(Call call, uint64_t address, const Memory& memory) {
  report(Finding::kInvalidFree,
         print("0x%" PRIx64 " given to %s %s", address, info(call).symbol,
               why_not_freed(address, memory.allocations)),
         history_of(address, 1, memory));
}

void report_block_end(uint64_t address, const Memory& memory) {
  report(Finding::kInvalidFree,
         print("block 0x%" PRIx64 " %s", address, why_not_freed(address, memory.blocks)),
         history_of(address, 1, memory));
}

void report_unfinished(const Operation& work, const char* told, uint64_t freed) {
  const std::string of = freed == 0 ? "" : print(" of 0x%" PRIx64, freed);
  report(Finding::kOrderLost, name_of(work) + " is under way after " + told + of,
         line_of("work", work, "given") + by_this_thread());
}

void report_added(const Operation& work, const char* who, Call call, const char* told) {
  const char* within = told[0] == '\0' ? "a submission or a request" : told;
  report(Finding::kOrderAdded,
         print("%s %s waits for %s, in %s", who, info(call).symbol, name_of(work).c_str(), within),
         line_of("work", work, "given") + by_this_thread());
}

void report_leak(const Life& life) {
  report(Finding::kLeak,
         stretch(life.address, life.bytes) +
             print(" of %s #%" PRIu64 " was never given back",
                   life.begun_by ? info(*life.begun_by).symbol : "pool", life.begun),
         "");
}

}  // namespace simcuda
