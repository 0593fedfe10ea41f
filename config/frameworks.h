// SPDX-License-Identifier: Apache-2.0
// Frameworks that pool device memory themselves. Each is recognised by a file of its own; most have
// a switch that leaves pooling to Cistern. At exit the preloaded object looks for these files among
// the loaded ones. The tool looks for them among those that a program would load. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace cistern::config {

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
