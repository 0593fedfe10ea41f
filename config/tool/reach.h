// SPDX-License-Identifier: Apache-2.0
//
// Doctor's report on a program, or on a library that programs load: its routes to the driver,
// whether they are covered, whose malloc serves it, and which frameworks pool its memory.
#pragma once

#include <string>

#include "config/tool/elf.h"

namespace cistern::config::tool {

struct Reach {
  bool works = false;        // false: something is in the way, and is said
  bool without_cuda = true;  // no route to the driver is seen
  bool serves_malloc = false;
  std::string but{};  // what holds in spite of that, for the verdict
};

// `object` is what would be preloaded, from `object_path`.
Reach say_program(const char* name, const Elf& object, const std::string& object_path);

}  // namespace cistern::config::tool
