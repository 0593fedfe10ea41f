// SPDX-License-Identifier: Apache-2.0
// What the preloaded object and cistern-config both know, beside the settings: Cistern's version,
// the names of driver functions, and the frameworks that pool device memory themselves. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cistern::config {

// Defined only here: `cistern version` and the report print it.
inline constexpr char kVersion[] = "0.2.0";

// --- Names of driver functions as 64-bit hashes. The preloaded object must recognise about a
// thousand names, but never needs their text. It keeps the sorted hashes in a section of its own
// (shim/entry/driver.h). `cistern doctor` reads that section from the file, to compare a driver's
// exports with the names that the object knows.

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

// --- Frameworks that pool device memory themselves. Each is recognised by a file of its own; most
// have a switch that leaves pooling to Cistern. At exit the preloaded object looks for these files
// among the loaded ones. The tool looks for them among those that a program would load.

struct Framework {
  const char* name;
  const char* part;      // a component of its file's path begins with this
  const char* file;      // its file, below Python's folder of packages
  const char* variable;  // switches its pool off; nullptr: only the program's code can
  const char* value;     // the value that switches it off; nullptr: any
  const char* setting;   // what to type or to call in the program; "": it has no switch
  bool if_asked;         // it pools only if the program asks it to
  // Its library is opened with RTLD_DEEPBIND, past every preload: the C library frees our blocks.
  bool binds_deep = false;
  bool reads_flags =
      false;  // it reads variables that have the names of Cistern's settings (FLAGS_*)
};

std::span<const Framework> frameworks();

// The framework that the file at this path belongs to, or nullptr.
const Framework* framework_of(std::string_view path);

// Whether the framework pools memory while its variable has this value (nullptr: is not set).
bool pools_itself(const Framework& framework, const char* value);

// "pools device memory itself; NAME=VALUE lets Cistern do it"
void describe_framework(const Framework& framework, char* out, size_t size);

}  // namespace cistern::config
