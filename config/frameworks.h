// SPDX-License-Identifier: Apache-2.0
// Frameworks that pool device memory themselves. Each has a file by which it is recognised, and a
// setting that leaves pooling to Cistern. The object looks for them among the loaded files at exit,
// the tool among those that a program would load. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace cistern::config {

struct Framework {
  const char* name;
  const char* part;      // a folder or file of its path begins so
  const char* file;      // below the folder of Python's packages
  const char* variable;  // nullptr: only the program itself can switch its pool off
  const char* value;     // nullptr: whatever its value is
  const char* setting;   // what to type; "": it has no switch
  bool if_asked;         // it pools only where the program asks it to
  // Its library is opened with RTLD_DEEPBIND, past every preload: the C library frees our blocks.
  bool binds_deep = false;
  bool reads_flags =
      false;  // its pool is set by variables that settings of Cistern's are called like
};

std::span<const Framework> frameworks();

// The one whose file this is, or nullptr.
const Framework* framework_of(std::string_view path);

// Whether it pools, if its variable has this value; nullptr: it is not set.
bool pools_itself(const Framework& framework, const char* value);

// "pools device memory itself; NAME=VALUE lets Cistern do it"
void describe_framework(const Framework& framework, char* out, size_t size);

}  // namespace cistern::config
