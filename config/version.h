// SPDX-License-Identifier: Apache-2.0
//
// The version of Cistern: the one place that says it. The build reads it from here, and
// `cistern version` prints it.
#pragma once

namespace cistern::config {

inline constexpr char kVersion[] = "0.2.0";

}  // namespace cistern::config
