// SPDX-License-Identifier: Apache-2.0
//
// Names of driver functions as numbers: the preloaded object knows many more names than it has use
// for their text, and `cistern doctor` compares a driver's exports with what the object knows. The
// object keeps the numbers in a section of its own (shim/entry/faces.h), sorted, which the
// tool reads from the file.
#pragma once

#include <cstdint>
#include <string_view>

namespace cistern::config {

inline constexpr const char* kKnownNamesSection = ".cistern.known";

// FNV-1a of 64 bits. Of the thousand names there are no two share one; that an unknown name has the
// number of a known one is as likely as 1 in 10^16.
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Whether a name is formed as the driver's are. Those of CUDA's other libraries go on with a small
// letter, as cudaMalloc and cublasCreate do.
constexpr bool is_driver_name(std::string_view name) {
  return name.size() > 2 && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

}  // namespace cistern::config
