// SPDX-License-Identifier: Apache-2.0
// How much memory the machine and the control group leave this process. Any thread; nothing here
// allocates, changes errno or is a cancellation point.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::alloc::host {

// The machine's physical memory, or the lowest limit of the process's control groups (version 2, or
// the memory controller of version 1) and of those above them, whichever is lower. In bytes; 0 if
// the system does not say.
uint64_t usable_memory();

// The same from given files, for tests: `groups` is the text of /proc/self/cgroup, `root` the place
// where control groups are mounted.
uint64_t group_limit(const char* groups, const char* root);

}  // namespace cistern::alloc::host
