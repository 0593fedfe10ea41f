// SPDX-License-Identifier: Apache-2.0
// What a context with one small block takes of the host's memory is counted, in pages.
// Pages of the simulated device, which is host memory, are left out: those of the block's own 2
// MiB.
//
//   host_memory KIB   the most that each of ten contexts may take

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../driver_codes.h"
#include "../sanitized.h"
#include "../timed_code.h"

namespace {

constexpr uint64_t kPage = 4096, kDevicePage = 2 * kMiB;

std::vector<CUdeviceptr> g_blocks;

bool of_the_device(uint64_t address) {
  return std::any_of(g_blocks.begin(), g_blocks.end(), [=](CUdeviceptr block) {
    return address / kDevicePage == block / kDevicePage;
  });
}

// Pages of this mapping that are there, or were moved out.
size_t pages_in(int pagemap, uint64_t start, uint64_t end) {
  constexpr uint64_t kThere = uint64_t{1} << 63, kMovedOut = uint64_t{1} << 62;
  size_t count = 0;
  std::vector<uint64_t> entries(4096);
  for (uint64_t at = start; at < end; at += entries.size() * kPage) {
    const size_t wanted = std::min<size_t>((end - at) / kPage, entries.size());
    const ssize_t got =
        pread(pagemap, entries.data(), wanted * 8, static_cast<off_t>(at / kPage * 8));
    for (ssize_t i = 0; i < got / 8; ++i) {
      const bool there = (entries[static_cast<size_t>(i)] & (kThere | kMovedOut)) != 0;
      count += there && !of_the_device(at + static_cast<uint64_t>(i) * kPage) ? 1 : 0;
    }
  }
  return count;
}

// A sanitizer's shadow is not the object's, and so large that to look through it takes minutes.
size_t private_pages() {
  if (with_tsan() || with_asan()) return 0;
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t start = 0, end = 0;
    char dash = 0;
    std::string access;
    std::istringstream(line) >> std::hex >> start >> dash >> end >> access;
    if (access.starts_with("rw-p")) count += pages_in(pagemap, start, end);
  }
  close(pagemap);
  return count;
}

void more_contexts(int count) {
  for (int i = 0; i < count; ++i) {
    CUcontext context = nullptr;
    MUST(cuCtxCreate(&context, nullptr, 0, 0));
    g_blocks.push_back(0);
    MUST(cuMemAlloc(&g_blocks.back(), 4096));
  }
}

}  // namespace

int main(int, char** argv) {
  constexpr int kContexts = 10;
  const auto most = static_cast<size_t>(std::atoi(argv[1])) * 1024;
  MUST(cuInit(0));
  private_pages();  // what that takes itself is there now
  more_contexts(2);
  const size_t before = private_pages();
  more_contexts(kContexts);
  const size_t each = (private_pages() - before) * kPage / kContexts;
  const bool good = each <= most;
  std::printf("%s\n", good ? "no more than that" : "more than that");
  if (!good) std::printf("%zu bytes\n", each);
  return 0;
}
