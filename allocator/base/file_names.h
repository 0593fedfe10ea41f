// SPDX-License-Identifier: Apache-2.0
// File names behind which no other user can have put a link. Such a file can be written without
// further checks. Any thread.
#pragma once

#include <cstring>

namespace cistern::alloc {

// Whether the path names a file descriptor of this or another process. The kernel keeps other users
// away from a process's descriptors.
inline bool names_descriptor(const char* path) {
  const auto after = [](const char* start, const char* text) -> const char* {
    const size_t length = strlen(start);
    return strncmp(text, start, length) == 0 ? text + length : nullptr;
  };
  const auto all_digits = [](const char* text) {
    return *text != '\0' && text[strspn(text, "0123456789")] == 0;
  };
  if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0) return true;
  if (const char* number = after("/dev/fd/", path); number != nullptr) return all_digits(number);
  const char* process = after("/proc/", path);
  if (process == nullptr) return false;
  const char* rest = after("self", process);
  if (rest == nullptr) rest = process + strspn(process, "0123456789");
  const char* number = rest == process ? nullptr : after("/fd/", rest);
  return number != nullptr && all_digits(number);
}

// Whether the path names a descriptor, or one of the devices that store nothing.
inline bool nobody_else_made(const char* path) {
  for (const char* name : {"/dev/null", "/dev/full", "/dev/tty"}) {
    if (strcmp(path, name) == 0) return true;
  }
  return names_descriptor(path);
}

}  // namespace cistern::alloc
