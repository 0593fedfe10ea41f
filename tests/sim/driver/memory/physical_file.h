// SPDX-License-Identifier: Apache-2.0
//
// Where physical memory is: stretches of one file of the process, so that all handles together take
// one of its descriptors, of which it may have 1024. Each stretch has a page before it, which tells
// an importer its size. What is exported is a new opening of the file: its position, which travels
// with it, is the stretch's. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace simcuda {

class PhysicalFile;

// Holds the file open; without any the file goes, and all memory in it.
struct Stretch {
  std::shared_ptr<PhysicalFile> file;
  uint64_t offset;
  size_t bytes;
};

// Memory that reads as zeros. None if the system has none.
std::optional<Stretch> take_stretch(size_t bytes);

// Its pages go back to the system at once.
void give_back_stretch(const Stretch& stretch);

// At this address, which was reserved, without access; false if the system refuses.
bool map_stretch(const Stretch& stretch, size_t bytes, uint64_t address);

// A descriptor for another process, or this one; -1 if there is none.
int export_stretch(const Stretch& stretch);

// What a descriptor stands for; none if it is no exported stretch. The descriptor stays the
// caller's.
std::optional<Stretch> import_stretch(int descriptor);

}  // namespace simcuda
