// SPDX-License-Identifier: Apache-2.0
// Every kind of memory given to every function that frees; frees of what is not there.
// What lives beside it must stay as it is, and nothing may be lost.

#include <cstring>
#include <initializer_list>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr size_t kUnit = 2 * kMiB;

CUstream g_stream;
CUmemoryPool g_pool;

// --- neighbours: live blocks that no free may touch ---

struct Neighbour {
  CUdeviceptr address;
  size_t bytes;
  unsigned pattern;
};
std::vector<Neighbour> g_neighbours;

void add_neighbour(size_t bytes) {
  Neighbour n{0, bytes, 0x5eed0000u + static_cast<unsigned>(g_neighbours.size())};
  cuMemAlloc(&n.address, n.bytes);
  cuMemsetD32(n.address, n.pattern, n.bytes / 4);
  g_neighbours.push_back(n);
}

void look_at_neighbours() {
  int damaged = 0;
  for (const Neighbour& n : g_neighbours) {
    CUdeviceptr start = 0;
    size_t bytes = 0;
    std::vector<unsigned> seen(n.bytes / 4);
    cuMemGetAddressRange(&start, &bytes, n.address + n.bytes / 2);
    if (start != n.address || bytes != n.bytes) ++damaged;
    cuMemcpyDtoH(seen.data(), n.address, n.bytes);
    for (const unsigned word : seen) damaged += word == n.pattern ? 0 : 1;
  }
  if (damaged != 0) std::printf("  neighbours damaged: %d\n", damaged);
}

// --- every kind of memory, and the right way to free it ---

struct Memory {
  CUdeviceptr address;
  CUmemGenericAllocationHandle handle;
};

struct Kind {
  const char* name;
  CUresult (*allocate)(Memory* out);
  CUresult (*free)(const Memory& memory);
};

alignas(4096) char g_host[8192];

template <size_t kBytes>
CUresult plain(Memory* m) {
  return cuMemAlloc(&m->address, kBytes);
}
CUresult pitched(Memory* m) {
  size_t pitch;
  return cuMemAllocPitch(&m->address, &pitch, 100, 50, 4);
}
CUresult managed(Memory* m) { return cuMemAllocManaged(&m->address, 5000, CU_MEM_ATTACH_GLOBAL); }
CUresult ordered(Memory* m) { return cuMemAllocAsync(&m->address, 5000, g_stream); }
CUresult from_pool(Memory* m) {
  return cuMemAllocFromPoolAsync(&m->address, 5000, g_pool, g_stream);
}
CUresult pinned(Memory* m) { return cuMemAllocHost(reinterpret_cast<void**>(&m->address), 5000); }
CUresult host(Memory* m) {
  return cuMemHostAlloc(reinterpret_cast<void**>(&m->address), 5000, CU_MEMHOSTALLOC_DEVICEMAP);
}
CUresult registered(Memory* m) {
  m->address = reinterpret_cast<CUdeviceptr>(g_host);
  return cuMemHostRegister(g_host, sizeof g_host, 0);
}
CUresult array(Memory* m) {
  const CUDA_ARRAY_DESCRIPTOR shape{100, 50, CU_AD_FORMAT_FLOAT, 1};
  return cuArrayCreate(reinterpret_cast<CUarray*>(&m->address), &shape);
}
CUresult mapped(Memory* m) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result = cuMemAddressReserve(&m->address, kUnit, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuMemCreate(&m->handle, kUnit, &properties, 0);
  if (result == CUDA_SUCCESS) result = cuMemMap(m->address, kUnit, 0, m->handle, 0);
  return result == CUDA_SUCCESS ? cuMemSetAccess(m->address, kUnit, &access, 1) : result;
}

CUresult free_device(const Memory& m) { return cuMemFree(m.address); }
CUresult free_ordered(const Memory& m) { return cuMemFreeAsync(m.address, g_stream); }
CUresult free_pinned(const Memory& m) { return cuMemFreeHost(reinterpret_cast<void*>(m.address)); }
CUresult unregister(const Memory& m) {
  return cuMemHostUnregister(reinterpret_cast<void*>(m.address));
}
CUresult destroy_array(const Memory& m) {
  return cuArrayDestroy(reinterpret_cast<CUarray>(m.address));
}
CUresult unmap(const Memory& m) { return cuMemUnmap(m.address, kUnit); }
CUresult free_address(const Memory& m) { return cuMemAddressFree(m.address, kUnit); }
CUresult unmap_all(const Memory& m) {
  const CUresult unmapped = cuMemUnmap(m.address, kUnit);
  const CUresult released = cuMemRelease(m.handle);
  const CUresult freed = cuMemAddressFree(m.address, kUnit);
  return unmapped != CUDA_SUCCESS ? unmapped : released != CUDA_SUCCESS ? released : freed;
}

constexpr Kind kKinds[] = {
    {"cuMemAlloc small", plain<5000>, free_device},
    {"cuMemAlloc large", plain<3 * kMiB>, free_device},
    {"cuMemAllocPitch", pitched, free_device},
    {"cuMemAllocManaged", managed, free_device},
    {"cuMemAllocAsync", ordered, free_ordered},
    {"cuMemAllocFromPoolAsync", from_pool, free_ordered},
    {"cuMemAllocHost", pinned, free_pinned},
    {"cuMemHostAlloc", host, free_pinned},
    {"cuMemHostRegister", registered, unregister},
    {"cuArrayCreate", array, destroy_array},
    {"cuMemMap", mapped, unmap_all},
};

constexpr struct {
  const char* name;
  CUresult (*free)(const Memory& memory);
} kFrees[] = {
    {"cuMemFree", free_device},     {"cuMemFreeAsync", free_ordered},
    {"cuMemFreeHost", free_pinned}, {"cuMemHostUnregister", unregister},
    {"cuMemUnmap", unmap},          {"cuMemAddressFree", free_address},
};

void every_pair() {
  for (const Kind& kind : kKinds) {
    for (const auto& function : kFrees) {
      Memory memory{};
      const CUresult allocated = kind.allocate(&memory);
      const CUresult tried = function.free(memory);
      const CUresult freed = kind.free(memory);
      std::printf("%s %d, %s %d, its own %d, again %d\n", kind.name, allocated, function.name,
                  tried, freed, kind.free(memory));
      cuCtxSynchronize();
      look_at_neighbours();
    }
  }
}

// --- addresses that are nobody's to free ---

void try_both(const char* what, CUdeviceptr address) {
  std::printf("%s: cuMemFree %d", what, cuMemFree(address));
  std::printf(", cuMemFreeAsync %d\n", cuMemFreeAsync(address, g_stream));
  look_at_neighbours();
}

void wrong_addresses(size_t bytes) {
  CUdeviceptr block = 0, freed = 0;
  int local = 0;
  SAY(cuMemAlloc(&block, bytes));
  for (const size_t inside : {size_t{1}, size_t{512}, bytes / 2, bytes - 1, bytes}) {
    try_both("inside or past", block + inside);
  }
  try_both("below", block - 1);
  try_both("the stack", reinterpret_cast<CUdeviceptr>(&local));
  try_both("nowhere", 0x123456789000);
  try_both("the end of all", ~CUdeviceptr{0});
  SAY(cuMemAlloc(&freed, bytes));
  SAY(cuMemFree(freed));
  try_both("freed", freed);
  SAY(cuCtxSynchronize());
  try_both("freed and synchronised", freed);
  SAY(cuMemFree(block));
  try_both("freed", block);
  SAY(cuMemFree(0));
}

void twice(size_t bytes) {
  const auto free_by = [](bool ordered, CUdeviceptr block) {
    return ordered ? cuMemFreeAsync(block, g_stream) : cuMemFree(block);
  };
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      CUdeviceptr block = 0;
      SAY(cuMemAlloc(&block, bytes));
      const CUresult one = free_by(first, block), two = free_by(second, block);
      std::printf("freed %d, %d", one, two);
      cuCtxSynchronize();
      std::printf(", %d\n", free_by(second, block));
      look_at_neighbours();
    }
  }
}

// --- frees from elsewhere ---

void elsewhere(size_t bytes) {
  CUcontext own = nullptr, second = nullptr, other_device = nullptr;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuDevicePrimaryCtxRetain(&other_device, 1));
  SAY(cuCtxCreate(&second, nullptr, 0, 0));
  for (const CUcontext allocating : {own, second, other_device}) {
    for (const CUcontext freeing : {own, second, other_device, CUcontext{nullptr}}) {
      CUdeviceptr block = 0;
      CUresult allocated, inside, freed = CUDA_SUCCESS, again = CUDA_SUCCESS;
      cuCtxSetCurrent(allocating);
      allocated = cuMemAlloc(&block, bytes);
      std::thread([&] {
        cuCtxSetCurrent(freeing);
        inside = cuMemFree(block + 4);
        freed = cuMemFree(block);
        again = cuMemFree(block);
      }).join();
      std::printf("allocated %d, inside %d, freed %d, again %d", allocated, inside, freed, again);
      std::printf(", at home %d\n", cuMemFree(block));
      cuCtxSetCurrent(own);
      look_at_neighbours();
    }
  }
  SAY(cuCtxDestroy(second));
  SAY(cuCtxSetCurrent(own));
  SAY(cuDevicePrimaryCtxRelease(1));
}

}  // namespace

int main() {
  use_device(0);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  SAY(cuMemPoolCreate(&g_pool, &properties));
  SAY(cuStreamCreate(&g_stream, CU_STREAM_NON_BLOCKING));
  const size_t before = free_memory();
  for (const size_t bytes : {size_t{512}, size_t{5000}, kMiB, 3 * kMiB}) add_neighbour(bytes);
  every_pair();
  for (const size_t bytes : {size_t{5000}, 3 * kMiB}) {
    wrong_addresses(bytes);
    twice(bytes);
    elsewhere(bytes);
  }
  for (const Neighbour& n : g_neighbours) SAY(cuMemFree(n.address));
  SAY(cuCtxSynchronize());
  std::printf("memory lost: %lld\n", static_cast<long long>(before - free_memory()));
  return 0;
}
