// SPDX-License-Identifier: Apache-2.0
// Physical memory of the host, which the program makes itself, takes nothing of the device.
// However little of that is left: more than it has is made, mapped for it and used.

#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"

namespace {

constexpr size_t kUnit = 2 * kMiB, kUnits = 48;
constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, {0}};

CUmemAllocationProp properties(CUmemLocationType type, int node) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = {type, {node}};
  return what;
}

// More than the device has, mapped for it, written by a kernel and read by the host.
void use(const timed::Kernels& kernels, CUstream stream, const CUmemAllocationProp& what) {
  const CUmemAccessDesc access{kDevice, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const size_t before = free_memory();
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  SAY(cuMemCreate(&handle, kUnits * kUnit, &what, 0));
  SAY(cuMemAddressReserve(&at, kUnits * kUnit, 0, 0, 0));
  SAY(cuMemMap(at, kUnits * kUnit, 0, handle, 0));
  SAY(cuMemSetAccess(at, kUnits * kUnit, &access, 1));
  std::printf("taken of the device: %zu\n", before - free_memory());
  SAY(timed::fill_words(kernels, stream, at, 1024, 5, 0));
  SAY(cuStreamSynchronize(stream));
  uint32_t word = 0;
  SAY(cuMemcpyDtoH(&word, at + 4, sizeof word));
  std::printf("the second word: %u\n", word);
  SAY(cuMemUnmap(at, kUnits * kUnit));
  SAY(cuMemRelease(handle));
  SAY(cuMemAddressFree(at, kUnits * kUnit));
}

}  // namespace

int main() {
  use_device(0);
  const timed::Kernels kernels;
  const CUstream stream = timed::new_stream();
  // The pool keeps most of the device, in units or in chunks.
  std::vector<CUdeviceptr> blocks(10);
  for (CUdeviceptr& block : blocks) SAY(cuMemAlloc(&block, 3 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) SAY(cuMemFree(blocks[i]));

  use(kernels, stream, properties(CU_MEM_LOCATION_TYPE_HOST, 0));
  use(kernels, stream, properties(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp current = properties(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0);
  SAY(cuMemCreate(&handle, kUnit, &current, 0));

  for (size_t i = 1; i < blocks.size(); i += 2) SAY(cuMemFree(blocks[i]));
  SAY(cuCtxSynchronize());
  return 0;
}
