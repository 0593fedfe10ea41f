// SPDX-License-Identifier: Apache-2.0
//
// How work touches memory. An update is atomic: updates from anywhere may meet.
#pragma once

#include <cstdint>

namespace simcuda {

enum class Touch : uint8_t { kRead, kWrite, kUpdate };

}  // namespace simcuda
