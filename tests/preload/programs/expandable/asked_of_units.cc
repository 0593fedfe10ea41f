// SPDX-License-Identifier: Apache-2.0
// Virtual memory management asked of memory of cuMemAlloc: answered as for any such memory.
// At the base of a block, inside and after its free; what the block holds stays, and the program's
// own mappings beside it work.

#include <initializer_list>
#include <vector>

#include "../driver_codes.h"
#include "../newer.h"

namespace {

constexpr size_t kUnit = 2 * kMiB;

CUmemAllocationProp properties() {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return what;
}

struct Own {
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
};

Own map_own() {
  Own own;
  const CUmemAllocationProp what = properties();
  const CUmemAccessDesc access{what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SAY(cuMemAddressReserve(&own.at, 2 * kUnit, 0, 0, 0));
  SAY(cuMemCreate(&own.handle, kUnit, &what, 0));
  SAY(cuMemMap(own.at, kUnit, 0, own.handle, 0));
  SAY(cuMemSetAccess(own.at, kUnit, &access, 1));
  return own;
}

void unmap(const Own& own) {
  SAY(cuMemUnmap(own.at, kUnit));
  SAY(cuMemRelease(own.handle));
  SAY(cuMemAddressFree(own.at, 2 * kUnit));
}

// To what other devices reach only the program's own physical memory can be bound.
void bind(CUdeviceptr address) {
  const CUmulticastObjectProp team{1, kUnit, 0, 0};
  const unsigned long long any[8]{};
  CUmemGenericAllocationHandle multicast = 0;
  CUlogicalEndpointId endpoint = 0;
  SAY(cuMulticastCreate(&multicast, &team));
  SAY(cuMulticastBindAddr(multicast, 0, address, kUnit, 0));
  SAY(NEWER(cuMulticastBindAddr_v2, "cuMulticastBindAddr", 13010)(multicast, 0, 0, address, kUnit,
                                                                  0));
  SAY(NEWER(cuLogicalEndpointIdReserve, "cuLogicalEndpointIdReserve", 13030)(&endpoint, 1));
  SAY(NEWER(cuLogicalEndpointCreate, "cuLogicalEndpointCreate", 13030)(
      endpoint, reinterpret_cast<const CUlogicalEndpointProp*>(any)));
  SAY(NEWER(cuLogicalEndpointBindAddr, "cuLogicalEndpointBindAddr", 13030)(
      endpoint, 0, 0, reinterpret_cast<void*>(address), kUnit, 0));
}

void ask(const char* where, CUdeviceptr address, const Own& own) {
  std::printf("%s\n", where);
  bind(address);
  const CUmemLocation here = properties().location;
  const CUmemAccessDesc none{here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  CUmemGenericAllocationHandle handle = 7;
  unsigned long long flags = 7;
  SAY(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)));
  SAY(cuMemGetAccess(&flags, &here, address));
  SAY(cuMemSetAccess(address, kUnit, &none, 1));
  SAY(cuMemUnmap(address, kUnit));
  SAY(cuMemMap(address, kUnit, 0, own.handle, 0));
  SAY(cuMemAddressFree(address, kUnit));
  std::printf("handle %llu, flags %llu\n", handle, flags);
}

bool holds(CUdeviceptr address, size_t bytes, unsigned char byte) {
  std::vector<unsigned char> seen(bytes);
  if (cuMemcpyDtoH(seen.data(), address, bytes) != CUDA_SUCCESS) return false;
  for (const unsigned char each : seen) {
    if (each != byte) return false;
  }
  return true;
}

}  // namespace

int main() {
  use_device(0);
  const Own own = map_own();
  SAY(cuMemsetD8(own.at, 9, kUnit));
  for (const size_t bytes : {size_t{700}, kUnit, 5 * kMiB}) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemsetD8(block, 5, bytes));
    ask("base", block, own);
    ask("inside", block + bytes / 2, own);
    // From own memory into the block, if they lie so.
    SAY(cuMemUnmap(block - kUnit, 2 * kUnit));
    std::printf("the block holds what it held: %d\n", holds(block, bytes, 5));
    SAY(cuMemFree(block));
    ask("freed", block, own);
  }
  std::printf("own memory holds what it held: %d\n", holds(own.at, kUnit, 9));
  CUmemGenericAllocationHandle again = 0;
  SAY(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(own.at)));
  SAY(cuMemRelease(again));
  unmap(own);
  return 0;
}
