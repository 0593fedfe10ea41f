// SPDX-License-Identifier: Apache-2.0
// Names of ranges from what programs give NVTX: "domain/message", or "message" in the default
// domain, as a number of names(). No message is an empty one. A domain is the number of its name, 0
// the default. Any thread.
#pragma once

#include <cstdint>

#include "shim/nvtx/nvtx_api.h"

namespace cistern::shim {

uint32_t message_name(uint32_t domain, const char* message);
uint32_t message_name(uint32_t domain, const wchar_t* message);  // in UTF-8
uint32_t message_name(uint32_t domain, const nvtxEventAttributes_t* event);

}  // namespace cistern::shim
