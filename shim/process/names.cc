// SPDX-License-Identifier: Apache-2.0
#include "shim/process/names.h"

namespace cistern::shim {

namespace {
constinit alloc::Names names_{};
}

alloc::Names& names() { return names_; }

}  // namespace cistern::shim
