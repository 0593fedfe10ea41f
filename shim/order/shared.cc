// SPDX-License-Identifier: Apache-2.0
#include "shim/order/shared.h"

#include <atomic>

#include "shim/process/log.h"

namespace cistern::shim {
namespace {

constinit alloc::Shared the_shared{};
constinit std::atomic<uint64_t> times[2] = {};

}  // namespace

alloc::Shared& shared() { return the_shared; }

void noticed(Unseen what) {
  const bool stream = what == Unseen::kStream;
  if (times[static_cast<int>(what)].fetch_add(1) != 0) return;
  log(config::LogLevel::kInfo,
      "found a CUDA %s that no hook saw created; memory that its work may touch is reused only "
      "after the program has synchronised its context; cistern doctor shows which parts of the "
      "program are not covered",
      stream ? "stream" : "context");
}

uint64_t times_noticed(Unseen what) { return times[static_cast<int>(what)].load(); }

}  // namespace cistern::shim
