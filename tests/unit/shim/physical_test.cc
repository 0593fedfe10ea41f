// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program creates: charged as long as a handle or a mapping holds it, on a
// driver that gives the number of a released handle out again at once.
#include "shim/kinds/unpooled.h"

#include <set>

#include "shim/pooled/out_of_memory.h"
#include "shim/watch/watch.h"
#include "tests/catch.h"
#include "tests/unit/shim/charged_device.h"

using namespace cistern::shim;
using namespace cistern::test;
using namespace cistern::test::charged_device;

namespace cistern::shim {

// Nobody watches.
WatchedAllocation::WatchedAllocation(alloc::Memory, CUstream) {}
WatchedAllocation::~WatchedAllocation() = default;
void WatchedAllocation::ended(CUresult, uint64_t, uint64_t) {}
WatchedFree::WatchedFree(alloc::Memory, uint64_t, CUstream) {}
WatchedFree::~WatchedFree() = default;
void note_live(alloc::Memory, uint64_t, uint64_t, CUstream) {}
bool note_not_live(alloc::Memory, uint64_t, CUstream, alloc::LiveBlocks::Block*) { return false; }
void phase_block_not_freed(const alloc::LiveBlocks::Block&) {}

CUresult no_room_for_units() { return CUDA_ERROR_OUT_OF_MEMORY; }

}  // namespace cistern::shim

namespace {

constexpr CUdeviceptr kHere = uint64_t{1} << 40, kThere = uint64_t{2} << 40;

std::set<CUmemGenericAllocationHandle> given;  // handles that the program has

void set_driver() {
  given.clear();
  Driver& d = fakes().driver;
  d.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t, const CUmemAllocationProp*,
                     unsigned long long) {
    for (*out = 1; !given.insert(*out).second;) ++*out;
    return CUDA_SUCCESS;
  };
  d.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return given.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    return given.count(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d.cuMemUnmap = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
}

CUmemGenericAllocationHandle create(CUmemLocationType where, uint64_t bytes) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = where;
  CUmemGenericAllocationHandle handle = 0;
  CHECK(create_physical(&handle, bytes, &what, 0) == CUDA_SUCCESS);
  return handle;
}

}  // namespace

TEST_CASE("physical memory is charged until its last handle and its last mapping are gone") {
  Charges device;
  set_driver();
  const auto handle = create(CU_MEM_LOCATION_TYPE_DEVICE, 4 * kPage);
  CHECK(map_physical(kHere, 4 * kPage, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(release_physical(handle) == CUDA_SUCCESS);
  CHECK(release_physical(handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(device->cap.charged() == 4 * kPage);
  CHECK(unmap_physical(kHere, 4 * kPage) == CUDA_SUCCESS);
  CHECK(device->cap.charged() == 0);
}

TEST_CASE("a handle under the number of one that was released is none of the memory behind that") {
  Charges device;
  set_driver();
  const auto handle = create(CU_MEM_LOCATION_TYPE_DEVICE, 4 * kPage);
  CHECK(map_physical(kHere, 4 * kPage, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(release_physical(handle) == CUDA_SUCCESS);
  const auto of_host = create(CU_MEM_LOCATION_TYPE_HOST, kPage);
  REQUIRE(of_host == handle);
  CHECK(map_physical(kThere, kPage, 0, of_host, 0) == CUDA_SUCCESS);
  CHECK(release_physical(of_host) == CUDA_SUCCESS);
  CHECK(device->cap.charged() == 4 * kPage);
  SECTION("whose mapping goes first") {
    CHECK(unmap_physical(kHere, 4 * kPage) == CUDA_SUCCESS);
    CHECK(device->cap.charged() == 0);
    CHECK(unmap_physical(kThere, kPage) == CUDA_SUCCESS);
  }
  SECTION("whose mapping goes last") {
    CHECK(unmap_physical(kThere, kPage) == CUDA_SUCCESS);
    CHECK(device->cap.charged() == 4 * kPage);
    CHECK(unmap_physical(kHere, 4 * kPage) == CUDA_SUCCESS);
  }
}
