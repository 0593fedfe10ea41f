// SPDX-License-Identifier: Apache-2.0
// The file whose code is at an address, as long as the file is loaded. Any thread; takes the
// loader's lock, so no lock of Cistern's may be held.
#pragma once

#include <cstdint>

namespace cistern::shim {

// For each of `count` addresses, the number of its file's path (names(); 0: no file's) and the
// address as that file's symbol table counts.
struct CodeAddress {
  uint64_t address;  // given
  uint32_t file;
  uint64_t offset;
};
void find_files(CodeAddress* codes, int count);

// Whether the address is in Cistern's own code.
bool in_this_object(uint64_t address);

}  // namespace cistern::shim
