// SPDX-License-Identifier: Apache-2.0
#include "shim/order/shared.h"

#include "shim/process/log.h"

namespace cistern::shim {
namespace {

constinit alloc::Shared the_shared{};

}  // namespace

alloc::Shared& shared() { return the_shared; }

void distrust(const char* what) {
  if (the_shared.reclaim.frozen()) return;
  the_shared.reclaim.freeze();
  log(config::LogLevel::kWarn,
      "a CUDA %s was created out of our sight; freed memory is only reused after the driver had "
      "it back; cistern doctor tells which parts of the program are not covered",
      what);
}

}  // namespace cistern::shim
