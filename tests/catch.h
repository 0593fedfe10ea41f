// SPDX-License-Identifier: Apache-2.0
//
// Catch2 of either generation, under the names of the older one. Debian 12 has version 2, which is
// one header; Debian 13 and Ubuntu 24.04 have version 3, which is many and a library.
// CMakeLists.txt chooses what is linked, tests/catch_main.cc has version 2's main.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#include <string>

namespace Catch {
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
