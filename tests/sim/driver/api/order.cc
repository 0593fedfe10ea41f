// SPDX-License-Identifier: Apache-2.0
//
// simcuda/order.h.
#include "simcuda/order.h"

#include <mutex>

#include "exec/engine.h"
#include "exec/event.h"
#include "exec/stream.h"
#include "watch/oracle.h"

using namespace simcuda;

extern "C" {

#pragma GCC visibility push(default)

void simcuda_program_calls(const char* symbol, uint64_t freed) {
  if (judging()) program_calls(symbol, freed);
}

void simcuda_program_submits(const char* symbol) {
  if (judging()) program_submits(symbol);
}

void simcuda_program_returns(int code) {
  if (judging()) program_returns(static_cast<CUresult>(code));
}

void simcuda_program_makes(void* event) {
  const EventRef made = find_event(static_cast<CUevent>(event));
  if (!judging() || made == nullptr) return;
  const std::lock_guard lock(exec_mutex());
  made->of_program = true;
}

void simcuda_program_gets(uint64_t address, uint64_t bytes, int pinned) {
  if (judging()) program_gets(address, bytes, pinned != 0);
}

void simcuda_program_sees_unfinished(void* event, void* stream) {
  if (!judging()) return;
  Order order;
  if (const EventRef asked = find_event(static_cast<CUevent>(event))) {
    const std::lock_guard lock(exec_mutex());
    order = asked->order;
  } else if (const StreamRef of =
                 resolve_stream(static_cast<CUstream>(stream), DefaultStream::kLegacy)) {
    stream_order(of, &order);
  }
  program_finds_unfinished(order);
}

void simcuda_program_tells(const void* of) {
  if (judging()) program_tells(of);
}

void simcuda_program_hears(const void* of) {
  if (judging()) program_hears(of);
}

#pragma GCC visibility pop

}  // extern "C"
