// SPDX-License-Identifier: Apache-2.0
//
// The version of Cistern, defined only here. The build reads it, and `cistern version` prints it.
#pragma once

namespace cistern::config {

inline constexpr char kVersion[] = "0.2.0";

}  // namespace cistern::config
