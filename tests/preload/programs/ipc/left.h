// SPDX-License-Identifier: Apache-2.0
// What a process has of the simulated driver's: descriptors, mappings, addresses and handles.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "../virtual_memory.h"
#include "tests/hangs.h"

struct Left {
  long files, maps;
  SimcudaVirtualMemory memory;
};

// The simulator maps by files; the owner's service has a socket beside them.
inline long files_of_driver() {
  DIR* all = opendir("/proc/self/fd");
  long count = 0;
  while (const dirent* entry = readdir(all)) {
    char path[300], name[300];
    std::snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    const ssize_t length = readlink(path, name, sizeof name - 1);
    if (length <= 0) continue;
    name[length] = 0;
    count += std::strstr(name, "simcuda") != nullptr;
  }
  closedir(all);
  return count;
}

inline long maps_of_driver() {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  long count = 0;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    count += std::strstr(line, "memfd:simcuda") != nullptr;
  }
  std::fclose(maps);
  return count;
}

inline Left look() { return {files_of_driver(), maps_of_driver(), driver_virtual_memory()}; }

// Of files also what the process opened that is not the driver's.
inline long all_files() {
  DIR* all = opendir("/proc/self/fd");
  long count = 0;
  while (readdir(all) != nullptr) ++count;
  closedir(all);
  return count;
}

inline bool same(const Left& a, const Left& b) {
  return a.files == b.files && a.maps == b.maps && a.memory.handles == b.memory.handles &&
         a.memory.mappings == b.memory.mappings && a.memory.reservations == b.memory.reservations;
}

// An owner's service closes what it has sent while the importer has it already.
inline Left look_when_sent(const Left& before) {
  Left left{};
  comes_true([&] { return (left = look()).files == before.files; });
  return left;
}

inline void say_left(const char* who, const Left& before, const Left& after) {
  std::printf("left in the %s: %ld files, %ld maps, %lld units, %lld mapped, %lld ranges\n", who,
              after.files - before.files, after.maps - before.maps,
              static_cast<long long>(after.memory.handles - before.memory.handles),
              static_cast<long long>(after.memory.mappings - before.memory.mappings),
              static_cast<long long>(after.memory.reservations - before.memory.reservations));
}
