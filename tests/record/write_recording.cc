// SPDX-License-Identifier: Apache-2.0
// write_recording SEED THREADS EVENTS FILE: a recording of made-up events, for readers to read.
#include <cstdlib>
#include <fstream>

#include "tests/unit/allocator/record/written.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::vector<uint8_t> file = cistern::alloc::test::written_recording(
      std::strtoull(argv[1], nullptr, 0), static_cast<uint32_t>(std::atoi(argv[2])),
      std::strtoull(argv[3], nullptr, 0));
  std::ofstream(argv[4], std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  return 0;
}
