// SPDX-License-Identifier: Apache-2.0
// What of the process is locked, as the system says.
#pragma once

#include <cstdio>

// VmLck, in KiB.
inline long locked_kb() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  char line[200];
  long kb = -1;
  while (std::fgets(line, sizeof line, status) != nullptr) std::sscanf(line, "VmLck: %ld", &kb);
  std::fclose(status);
  return kb;
}
