// SPDX-License-Identifier: Apache-2.0
// Everything a program can ask of pinned memory, and every wrong call: answers as by the driver.

#include <initializer_list>

#include "../driver_codes.h"

namespace {

void ask(const char* where, char* asked, char* base) {
  std::printf("%s\n", where);
  const auto address = reinterpret_cast<CUdeviceptr>(asked);
  unsigned flags = 99;
  SAY(cuMemHostGetFlags(&flags, asked));
  std::printf("  flags %u\n", flags);
  CUdeviceptr device = 1, start = 1;
  SAY(cuMemHostGetDevicePointer(&device, asked, 0));
  std::printf("  device pointer %s\n", device == address ? "the same"
                                       : device == 1     ? "-"
                                                         : "other");
  size_t bytes = 2;
  SAY(cuMemGetAddressRange(&start, &bytes, address));
  std::printf("  start %s, bytes %zu\n",
              start == reinterpret_cast<CUdeviceptr>(base) ? "the block's" : "other", bytes);
  unsigned type = 0;
  SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  void* host = nullptr;
  SAY(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
  size_t range = 3, mapping = 3;
  CUdeviceptr range_start = 3;
  SAY(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
  size_t range_again = 3;
  void* places[] = {&range_start, &range_again, &mapping};
  SAY(cuPointerGetAttributes(3, names, places, address));
  std::printf("  type %u, host pointer %s, range %zu and %zu, start %s, mapping around it %d\n",
              type, host == asked ? "the same" : "other", range, range_again,
              range_start == reinterpret_cast<CUdeviceptr>(base) ? "the block's" : "other",
              mapping == range || (mapping % (2 * kMiB) == 0 && mapping - range < 4 * kMiB));
}

void ask_everywhere(unsigned flags, size_t bytes) {
  std::printf("flags %u, %zu bytes\n", flags, bytes);
  void* memory = nullptr;
  if (SAY(cuMemHostAlloc(&memory, bytes, flags)) != CUDA_SUCCESS) return;
  char* block = static_cast<char*>(memory);
  std::printf("aligned %d\n", reinterpret_cast<size_t>(block) % (bytes >= 4096 ? 4096 : 512) == 0);
  for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<char>(i);
  ask("base", block, block);
  ask("inside", block + bytes / 2, block);
  ask("last byte", block + bytes - 1, block);
  SAY(cuMemFreeHost(block + 1));
  SAY(cuMemFree(reinterpret_cast<CUdeviceptr>(block)));
  SAY(cuMemHostUnregister(block));
  SAY(cuMemFreeHost(block));
  ask("freed", block, block);
  SAY(cuMemFreeHost(block));
}

void wrong_calls() {
  void* memory = &memory;
  SAY(cuMemHostAlloc(nullptr, 4096, 0));
  SAY(cuMemHostAlloc(&memory, 4096, 0x40));
  SAY(cuMemHostAlloc(&memory, size_t{1} << 46, 0));
  SAY(cuMemHostAlloc(&memory, 0, 0));
  std::printf("null %d\n", memory == nullptr);
  memory = &memory;
  SAY(cuMemAllocHost(&memory, 0));
  std::printf("null %d\n", memory == nullptr);
  SAY(cuMemFreeHost(nullptr));
  SAY(cuMemFreeHost(&memory));
  CUdeviceptr device = 0;
  SAY(cuMemAlloc(&device, 4096));
  SAY(cuMemFreeHost(reinterpret_cast<void*>(device)));
  SAY(cuMemFree(device));
}

// Memory of the program's own is registered and unregistered by the driver alone.
void registered() {
  alignas(4096) static char own[8192];
  SAY(cuMemHostRegister(own, sizeof own, 0));
  ask("registered", own + 100, own);
  SAY(cuMemFreeHost(own));
  SAY(cuMemHostUnregister(own));
}

// A capture that forbids unsafe calls ends with the first one.
void captured(CUstreamCaptureMode mode) {
  std::printf("capture mode %d\n", mode);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  void *before = nullptr, *during = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuMemHostAlloc(&before, 10'000, 0));
  SAY(cuStreamBeginCapture(stream, mode));
  const CUresult got = SAY(cuMemHostAlloc(&during, 10'000, 0));
  const CUresult freed = SAY(cuMemFreeHost(before));
  SAY(cuStreamEndCapture(stream, &graph));
  if (graph != nullptr) SAY(cuGraphDestroy(graph));
  if (got == CUDA_SUCCESS) SAY(cuMemFreeHost(during));
  if (freed != CUDA_SUCCESS) SAY(cuMemFreeHost(before));
  SAY(cuStreamDestroy(stream));
}

}  // namespace

int main() {
  use_device(0);
  for (const unsigned flags :
       {0u, unsigned{CU_MEMHOSTALLOC_PORTABLE}, unsigned{CU_MEMHOSTALLOC_WRITECOMBINED}}) {
    for (const size_t bytes : {size_t{1}, size_t{700}, size_t{4096}, size_t{5000}, 3 * kMiB + 1}) {
      ask_everywhere(flags, bytes);
    }
  }
  wrong_calls();
  registered();
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    captured(mode);
  }
  return 0;
}
