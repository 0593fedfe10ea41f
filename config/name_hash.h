// SPDX-License-Identifier: Apache-2.0
//
// Names of driver functions as 64-bit hashes. The preloaded object must recognise about a thousand
// names, but never needs their text. It keeps the sorted hashes in a section of its own
// (shim/entry/faces.h). `cistern doctor` reads that section from the file, to compare a driver's
// exports with the names that the object knows.
#pragma once

#include <cstdint>
#include <string_view>

namespace cistern::config {

inline constexpr const char* kKnownNamesSection = ".cistern.known";

// FNV-1a of 64 bits. No two of the known names share a hash. An unknown name has the hash of a
// known one with a probability of 1 in 10^16.
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Whether a name looks like one of the driver's: `cu` and a capital. In names of CUDA's other
// libraries a small letter follows, as in cudaMalloc and cublasCreate.
constexpr bool is_driver_name(std::string_view name) {
  return name.size() > 2 && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

}  // namespace cistern::config
