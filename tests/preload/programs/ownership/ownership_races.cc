// SPDX-License-Identifier: Apache-2.0
// Threads that free the same block at once, and look-ups meanwhile.
// One of them succeeds. Threads that ask about blocks which others free and allocate meanwhile:
// they are told of a block that is or was there, or of none.

#include <array>
#include <atomic>
#include <initializer_list>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kSizes[] = {700, 900, 30000, 2 * kMiB + 5, 2 * kMiB + 700};
constexpr int kRounds = 300;

CUcontext g_context;

void in_threads(int count, const auto& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      cuCtxSetCurrent(g_context);
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void free_in_two_threads(size_t bytes) {
  std::array<std::atomic<CUdeviceptr>, kRounds> blocks{};
  for (auto& block : blocks) {
    CUdeviceptr address = 0;
    cuMemAlloc(&address, bytes);
    block = address;
  }
  std::atomic<int> freed{0}, refused{0}, other{0};
  in_threads(2, [&](int) {
    for (auto& block : blocks) {
      switch (cuMemFree(block)) {
        case CUDA_SUCCESS:
          ++freed;
          break;
        case CUDA_ERROR_INVALID_VALUE:
          ++refused;
          break;
        default:
          ++other;
      }
    }
  });
  std::printf("%zu bytes: freed %d, refused %d, other %d\n", bytes, freed.load(), refused.load(),
              other.load());
}

bool known_size(size_t bytes) {
  for (const size_t size : kSizes) {
    if (bytes == size) return true;
  }
  return false;
}

bool sensible_range(CUdeviceptr asked) {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  const CUresult result = cuMemGetAddressRange(&start, &bytes, asked);
  if (result == CUDA_ERROR_NOT_FOUND) return true;
  return result == CUDA_SUCCESS && known_size(bytes) && asked - start < bytes;
}

bool sensible_attributes(CUdeviceptr asked) {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  unsigned type = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  void* places[] = {&bytes, &type, &start};
  if (cuPointerGetAttributes(3, names, places, asked) != CUDA_SUCCESS) return false;
  const bool none = type == 0 && bytes == 0 && start == 0;
  return none || (type == CU_MEMORYTYPE_DEVICE && known_size(bytes) && asked - start < bytes);
}

bool sensible_attribute(CUdeviceptr asked) {
  size_t bytes = 0;
  const CUresult result = cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, asked);
  return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && known_size(bytes));
}

void ask_while_others_free() {
  std::atomic<CUdeviceptr> shown[4] = {};
  std::atomic<int> working{2}, wrong{0}, failures{0};
  in_threads(4, [&](int number) {
    if (number >= 2) {
      for (unsigned i = 0; working != 0; ++i) {
        const CUdeviceptr asked = shown[i % 4];
        if (asked == 0) continue;
        const bool good = sensible_range(asked + i % 600) && sensible_attributes(asked + i % 600) &&
                          sensible_attribute(asked + i % 600);
        if (!good) ++wrong;
      }
      return;
    }
    for (unsigned i = 0; i < 2000; ++i) {
      CUdeviceptr block = 0;
      if (cuMemAlloc(&block, kSizes[i % std::size(kSizes)]) != CUDA_SUCCESS) ++failures;
      shown[2 * static_cast<unsigned>(number) + i % 2] = block;
      if (cuMemFree(block) != CUDA_SUCCESS) ++failures;
    }
    --working;
  });
  std::printf("wrong answers %d, failures %d\n", wrong.load(), failures.load());
}

}  // namespace

int main() {
  g_context = use_device(0);
  for (const size_t bytes : {size_t{700}, size_t{3 * kMiB}}) free_in_two_threads(bytes);
  ask_while_others_free();
  allocate_and_free(100, 700);
  return 0;
}
