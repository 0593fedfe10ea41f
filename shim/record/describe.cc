// SPDX-License-Identifier: Apache-2.0
#include "shim/record/describe.h"

#include <cstdio>

namespace cistern::shim {

const char* describe_site(uint32_t site, char* out, size_t size) {
  std::snprintf(out, size, site == 0 ? "an unknown site" : "site %u", site);
  return out;
}

}  // namespace cistern::shim
