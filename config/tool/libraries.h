// SPDX-License-Identifier: Apache-2.0
//
// The libraries that the loader would map with a program or library, found without a loader: even a
// loader that only lists libraries maps files, and a forged file can make it map code over its own.
// Nothing is mapped here to be run. Whatever the files are, the walk ends: kMostLibraries names are
// looked up at most, and only regular files are opened.
//
// Folders are those of ld.so(8), in its order: DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, the loader's
// cache, and the system's own. Where a folder has a variant for this processor (glibc-hwcaps), the
// plain one is found. Folders with $LIB or $PLATFORM are ignored.
#pragma once

#include <string>
#include <vector>

#include "config/tool/elf.h"

namespace cistern::config::tool {

inline constexpr size_t kMostLibraries = 4096;

struct Library {
  std::string name;  // as what needs it calls it
  std::string path;  // empty: not found
};

// Those that the file `path` needs, and that they need in turn, each name once. `elf` is what was
// read of the file.
std::vector<Library> libraries_of(const std::string& path, const Elf& elf);

}  // namespace cistern::config::tool
