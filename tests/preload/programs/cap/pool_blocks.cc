// SPDX-License-Identifier: Apache-2.0
// Under a cap as many blocks of the driver's memory pools fit as on a device of that size.
// Fills a small device with blocks of many sizes, and with several sizes and pools at a time; frees
// every other one and fills it again. A process with a cap of that size on a larger device must be
// told the same each time.

#include <algorithm>
#include <vector>

#include "../kinds.h"

namespace {

constexpr size_t kKiB = 1024;

void info() {
  size_t free_bytes = 0;
  SAY(cuMemGetInfo(&free_bytes, nullptr));
  std::printf("free %zu KiB\n", free_bytes / kKiB);
}

CUresult from_own_pool(CUdeviceptr* block, size_t bytes) {
  return cuMemAllocFromPoolAsync(block, bytes, kinds::own_pool(0), nullptr);
}

class Device {
 public:
  // Blocks of these sizes in turn, until one of each is refused; every third from the second pool.
  void fill(const std::vector<size_t>& sizes) {
    size_t allocated = 0, refused = 0;
    CUresult code = CUDA_SUCCESS;
    for (size_t i = 0; refused < sizes.size(); ++i) {
      CUdeviceptr block = kUntouched;
      const size_t bytes = sizes[i % sizes.size()];
      code = i % 3 == 2 ? from_own_pool(&block, bytes) : cuMemAllocAsync(&block, bytes, nullptr);
      if (code == CUDA_SUCCESS) {
        blocks_.push_back(block);
        ++allocated;
        refused = 0;
      } else {
        ++refused;
        if (block != kUntouched) std::printf("a refused call wrote an address\n");
      }
    }
    std::printf("%zu bytes and %zu other sizes: %zu blocks, then %d\n", sizes[0], sizes.size() - 1,
                allocated, code);
    info();
  }

  void free_every(size_t step) {
    std::vector<CUdeviceptr> kept;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i % step != 0) {
        kept.push_back(blocks_[i]);
      } else if (cuMemFreeAsync(blocks_[i], nullptr) != CUDA_SUCCESS) {
        std::printf("a free failed\n");
      }
    }
    blocks_.swap(kept);
    SAY(cuCtxSynchronize());
    info();
  }

 private:
  static constexpr CUdeviceptr kUntouched = 4711;

  std::vector<CUdeviceptr> blocks_;
};

}  // namespace

int main() {
  use_device(0);
  info();
  Device device;
  for (const size_t bytes : {20 * kKiB, 300 * kKiB, 513 * kKiB, 700 * kKiB, 1000 * kKiB, kMiB,
                             1500 * kKiB, 3 * kMiB, 5 * kMiB}) {
    device.fill({bytes});
    device.free_every(2);
    device.fill({bytes / 2});
    device.free_every(3);
    device.fill({bytes});
    device.free_every(1);
  }
  for (int round = 0; round < 3; ++round) {
    device.fill({700 * kKiB, 3 * kMiB, 5000, 1200 * kKiB, 90 * kKiB});
    device.free_every(2);
  }
  device.free_every(1);
  device.fill({kMiB * 32, kMiB});
  device.free_every(1);
  return 0;
}
