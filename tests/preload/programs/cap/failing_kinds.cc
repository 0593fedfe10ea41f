// SPDX-License-Identifier: Apache-2.0
// A driver call for any kind of memory that fails once leaves no charge behind.
// The program tries again, and in the end as much is free as before.

#include <map>

#include "../kinds.h"

namespace {

std::map<int, int> g_codes;

bool good(CUresult code) {
  ++g_codes[code];
  return code == CUDA_SUCCESS;
}

size_t free_now() {
  size_t bytes = 0, total = 0;
  while (!good(cuMemGetInfo(&bytes, &total))) {
  }
  return bytes;
}

void use(const Kind& kind) {
  for (int round = 0; round < 3; ++round) {
    Piece piece;
    while (!good(allocate(kind, &piece, 20 * kMiB))) {
    }
    while (!good(kind.free(&piece))) {
    }
  }
}

// On a stream, from its device's pool and from that pool by name.
void use_stream() {
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  while (!good(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))) {
  }
  while (!good(cuDeviceGetDefaultMemPool(&pool, 0))) {
  }
  for (int round = 0; round < 6; ++round) {
    CUdeviceptr block = 0;
    while (!good(round % 2 == 0 ? cuMemAllocAsync(&block, 20 * kMiB, stream)
                                : cuMemAllocFromPoolAsync(&block, 20 * kMiB, pool, stream))) {
    }
    while (!good(cuMemFreeAsync(block, stream))) {
    }
    while (!good(cuStreamSynchronize(stream))) {
    }
  }
  cuStreamDestroy(stream);
}

// Handles and mappings, each step repeated until it succeeds.
void use_physical() {
  const CUmemAllocationProp properties = kinds::on_device(0);
  CUmemGenericAllocationHandle handle = 0, again = 0;
  CUdeviceptr at = 0;
  for (int round = 0; round < 3; ++round) {
    while (!good(cuMemCreate(&handle, 20 * kMiB, &properties, 0))) {
    }
    while (!good(cuMemAddressReserve(&at, 20 * kMiB, 0, 0, 0))) {
    }
    while (!good(cuMemMap(at, 20 * kMiB, 0, handle, 0))) {
    }
    while (!good(cuMemRelease(handle))) {
    }
    while (!good(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)))) {
    }
    while (!good(cuMemUnmap(at, 20 * kMiB))) {
    }
    while (!good(cuMemRelease(again))) {
    }
    while (!good(cuMemAddressFree(at, 20 * kMiB))) {
    }
  }
}

}  // namespace

int main() {
  use_device(0);
  const size_t before = free_now();
  for (const Kind& kind : kinds::kAll) {
    if (kind.free != kinds::free_mapped) use(kind);
  }
  use_stream();
  use_physical();
  while (!good(cuCtxSynchronize())) {
  }
  std::printf("free: %zu MiB before, %zu MiB after\n", before / kMiB, free_now() / kMiB);
  std::printf("failed:");
  for (const auto& [code, count] : g_codes) {
    if (code != CUDA_SUCCESS) std::printf(" %d (%d times)", code, count);
  }
  std::printf("\n");
  return 0;
}
