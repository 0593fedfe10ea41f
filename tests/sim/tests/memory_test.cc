// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support.h"
#include "tests/catch.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

}  // namespace

TEST_CASE("requests below 1 MiB share a 2 MiB block at 512-byte spacing") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    const CUdeviceptr first = new_block(1);
    EXPECT(new_block(512) == first + 512);
    EXPECT(new_block(513) == first + 1024);
    EXPECT(new_block(1) == first + 2048);
    EXPECT(first % kUnit == 0);
    EXPECT(before - free_bytes() == kUnit);
    EXPECT_OK(cuMemFree(first + 512));
    EXPECT(new_block(100) == first + 512);
  }));
}

TEST_CASE("requests from 1 MiB on are charged in units of 2 MiB") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    const CUdeviceptr one = new_block(size_t{1} << 20);
    EXPECT(before - free_bytes() == kUnit);
    const CUdeviceptr three = new_block(kUnit + 1);
    EXPECT(before - free_bytes() == 3 * kUnit);
    EXPECT(one % kUnit == 0 && three % kUnit == 0);
    EXPECT_OK(cuMemFree(one));
    EXPECT_OK(cuMemFree(three));
    EXPECT(free_bytes() == before);
  }));
}

TEST_CASE("out of memory is code 2, leaves out-parameters alone and passes") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "8"}}, [] {
    start();
    CUdeviceptr untouched = 0x1234;
    EXPECT_CODE(cuMemAlloc(&untouched, size_t{9} << 20), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CODE(cuMemAlloc(&untouched, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(untouched == 0x1234);
    std::vector<CUdeviceptr> units;
    for (int i = 0; i < 4; ++i) units.push_back(new_block(kUnit));
    EXPECT_CODE(cuMemAlloc(&untouched, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_CODE(cuMemAlloc(&untouched, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(free_bytes() == 0);
    // Free memory counts, not where it lies: two units apart serve one request of two.
    EXPECT_OK(cuMemFree(units[0]));
    EXPECT_OK(cuMemFree(units[2]));
    new_block(2 * kUnit);
  }));
}

TEST_CASE("size zero and foreign or interior addresses are invalid values") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr address = 0;
    EXPECT_CODE(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(0));
    const CUdeviceptr small = new_block(2048);
    const CUdeviceptr large = new_block(4 * kUnit);
    for (const CUdeviceptr wrong : {small + 1, small + 512, large + 512, large + kUnit,
                                    reinterpret_cast<CUdeviceptr>(&address)}) {
      EXPECT_CODE(cuMemFree(wrong), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_OK(cuMemFree(small));
    EXPECT_CODE(cuMemFree(small), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(large));
    EXPECT_CODE(cuMemFree(large), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("fresh memory is not zero") {
  REQUIRE(in_child({}, [] {
    start();
    for (const size_t bytes : {size_t{700}, 3 * kUnit}) {
      std::vector<unsigned char> seen(bytes);
      EXPECT_OK(cuMemcpyDtoH(seen.data(), new_block(bytes), bytes));
      EXPECT(seen.front() == 0xA5 && seen.back() == 0xA5);
    }
  }));
}

TEST_CASE("a fill of fresh memory is of its bytes and no others") {
#ifdef __SANITIZE_THREAD__  // which makes each look at a byte a hundred times as slow
  const std::vector<size_t> begins = {kUnit / 2 + 4}, lengths = {kUnit + 20484};
#else
  const std::vector<size_t> begins = {0, 4, 4096, kUnit / 2 + 4, kUnit - 4};
  const std::vector<size_t> lengths = {kUnit / 2, kUnit, kUnit + 20484, 2 * kUnit + 4};
#endif
  REQUIRE(in_child({}, [&] {
    start();
    const size_t bytes = 4 * kUnit;
    std::vector<unsigned char> seen(bytes);
    const auto expect_filled = [&](CUdeviceptr block, size_t from, size_t to, unsigned value,
                                   size_t element) {
      EXPECT_OK(cuMemcpyDtoH(seen.data(), block, bytes));
      size_t wrong = 0;
      for (size_t i = 0; i < bytes; ++i) {
        const auto wanted = static_cast<unsigned char>(value >> (8 * (i % element)));
        const bool fresh = seen[i] == 0 || seen[i] == 0xA5;
        wrong += i >= from && i < to ? seen[i] != wanted : !fresh;
      }
      EXPECT(wrong == 0);
    };
    for (const size_t from : begins) {
      for (const size_t length : lengths) {
        const size_t to = from + length;
        const CUdeviceptr one = new_block(bytes), two = new_block(bytes), four = new_block(bytes);
        EXPECT_OK(cuMemsetD8(one + from, 0x12, length));
        expect_filled(one, from, to, 0x12, 1);
        EXPECT_OK(cuMemsetD16(two + from, 0x1234, length / 2));
        expect_filled(two, from, to, 0x1234, 2);
        EXPECT_OK(cuMemsetD32(four + from, 0x12345678, length / 4));
        expect_filled(four, from, to, 0x12345678, 4);
        EXPECT_OK(cuMemsetD32(four + from, 0x87654321, length / 4));
        expect_filled(four, from, to, 0x87654321, 4);
      }
    }
  }));
}

TEST_CASE("a fill writes to no file that a program put in place of the device's") {
  REQUIRE(in_child({}, [] {
    start();
    const int own = memfd_create("program's", 0);
    int replaced = 0;
    for (int file = 3; file < own; ++file) {
      char name[64] = {};
      const std::string link = "/proc/self/fd/" + std::to_string(file);
      if (readlink(link.c_str(), name, sizeof name - 1) < 0) continue;
      if (std::string(name).starts_with("/memfd:simcuda-device-"))
        replaced += dup2(own, file) == file;
    }
    EXPECT(replaced == 1);
    const CUdeviceptr block = new_block(kUnit);
    EXPECT_OK(cuMemsetD32(block, 7, kUnit / 4));
    EXPECT(word_at(block) == 7 && word_at(block + kUnit - 4) == 7);
    EXPECT(lseek(own, 0, SEEK_END) == 0);
  }));
}

TEST_CASE("a fill does not end a program whose files may not grow") {
  REQUIRE(in_child({}, [] {
    start();
    const rlimit limit{4096, 4096};
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const CUdeviceptr block = new_block(2 * kUnit);
    EXPECT_OK(cuMemsetD32(block, 7, 2 * kUnit / 4));
    EXPECT(word_at(block) == 7 && word_at(block + 2 * kUnit - 4) == 7);
  }));
}

TEST_CASE("memory that a stream was told to free is freed once") {
  REQUIRE(in_child({{"SIMCUDA_LATENCY", "cuMemsetD8Async=50ms"}}, [] {
    start();
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr block = new_block(1000);
    EXPECT_OK(cuMemsetD8Async(block, 1, 1000, stream));  // the free is still to come
    EXPECT_OK(cuMemFreeAsync(block, stream));
    EXPECT_CODE(cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(new_block(1000) != 0);
  }));
}

TEST_CASE("a capture frees no memory but its graph's") {
  REQUIRE(in_child({}, [] {
    start();
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    const CUdeviceptr block = new_block(1000);
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CODE(cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuStreamEndCapture(stream, &graph));
    EXPECT_OK(cuMemFree(block));
  }));
}

TEST_CASE("random allocations never overlap and all of it comes back") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64"}}, [] {
    start();
    const size_t before = free_bytes();
    std::mt19937 random(7);
    std::vector<std::pair<CUdeviceptr, size_t>> live;
    for (int i = 0; i < 20000; ++i) {
      if (live.size() > 300 || (!live.empty() && random() % 2 == 0)) {
        std::swap(live[random() % live.size()], live.back());
        EXPECT_OK(cuMemFree(live.back().first));
        live.pop_back();
        continue;
      }
      const size_t bytes = random() % 50 == 0 ? random() % (3 * kUnit) + 1 : random() % 9000 + 1;
      CUdeviceptr address = 0;
      if (cuMemAlloc(&address, bytes) == CUDA_SUCCESS) live.emplace_back(address, bytes);
    }
    std::sort(live.begin(), live.end());
    for (size_t i = 1; i < live.size(); ++i) {
      EXPECT(live[i - 1].first + live[i - 1].second <= live[i].first);
    }
    for (const auto& [address, bytes] : live) EXPECT_OK(cuMemFree(address));
    EXPECT(free_bytes() == before);
  }));
}

TEST_CASE("ending a context frees its memory") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    new_block(100);
    new_block(5 * kUnit);
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    CUdeviceptr address = 0;
    EXPECT_CODE(cuMemAlloc(&address, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    start();
    EXPECT(free_bytes() == before);
    CUcontext created = nullptr;
    EXPECT_OK(cuCtxCreate(&created, nullptr, 0, 0));
    new_block(kUnit);
    EXPECT_OK(cuCtxDestroy(created));
    EXPECT(free_bytes() == before);
  }));
}

TEST_CASE("stream-ordered memory outlives the context it was allocated in") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = free_bytes();
    CUcontext created = nullptr;
    CUdeviceptr kept[2] = {};
    EXPECT_OK(cuMemAllocAsync(&kept[0], 3 * kUnit, nullptr));
    new_block(kUnit);
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    start();
    EXPECT(before - free_bytes() == 3 * kUnit);
    EXPECT_OK(cuCtxCreate(&created, nullptr, 0, 0));
    EXPECT_OK(cuMemAllocAsync(&kept[1], kUnit, nullptr));
    EXPECT_OK(cuCtxDestroy(created));
    EXPECT(before - free_bytes() == 4 * kUnit);
    CUmemoryPool pool = nullptr;
    cuuint64_t used = 0;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT(used == 4 * kUnit);
    EXPECT_OK(cuMemFreeAsync(kept[0], nullptr));
    EXPECT_OK(cuMemFree(kept[1]));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(free_bytes() == before);
  }));
}

TEST_CASE("devices have the sizes they were given") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "3"}, {"SIMCUDA_MEMORY_MB", "64,32"}}, [] {
    EXPECT_OK(cuInit(0));
    int count = 0;
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT(count == 3);
    const size_t expected[] = {64, 32, 32};
    for (int i = 0; i < 3; ++i) {
      size_t bytes = 0;
      EXPECT_OK(cuDeviceTotalMem(&bytes, i));
      EXPECT(bytes == expected[i] << 20);
    }
  }));
}

TEST_CASE("an array takes whole tiles, and one with deferred mapping only tells so") {
  REQUIRE(in_child({}, [] {
    start();
    size_t before = 0;
    size_t during = 0;
    CUDA_ARRAY3D_DESCRIPTOR shape{250, 2045, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY_MEMORY_REQUIREMENTS required{};
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    EXPECT_OK(cuMemGetInfo(&before, nullptr));
    EXPECT_OK(cuArray3DCreate(&array, &shape));
    EXPECT_OK(cuMemGetInfo(&during, nullptr));
    EXPECT(before - during == size_t{2} << 20);
    EXPECT_CODE(cuArrayGetMemoryRequirements(&required, array, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuArrayDestroy(array));

    shape.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    EXPECT_OK(cuArray3DCreate(&array, &shape));
    EXPECT_OK(cuArrayGetMemoryRequirements(&required, array, 0));
    EXPECT(required.size == size_t{2} << 20);
    EXPECT_OK(cuMipmappedArrayCreate(&mipmapped, &shape, 2));
    EXPECT_OK(cuMipmappedArrayGetMemoryRequirements(&required, mipmapped, 0));
    EXPECT(required.size == size_t{5} << 19);
    EXPECT_OK(cuMemGetInfo(&during, nullptr));
    EXPECT(before == during);
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_OK(cuMipmappedArrayDestroy(mipmapped));
    EXPECT_CODE(cuMipmappedArrayCreate(&mipmapped, &shape, 0), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("elements are copied to and from arrays, also between them, and not past an edge") {
  REQUIRE(in_child({}, [] {
    start();
    CUarray arrays[2] = {};
    const CUDA_ARRAY3D_DESCRIPTOR shape{6, 4, 3, CU_AD_FORMAT_SIGNED_INT16, 2, 0};
    for (CUarray& array : arrays) EXPECT_OK(cuArray3DCreate(&array, &shape));
    uint32_t in[72], out[72] = {};
    std::iota(std::begin(in), std::end(in), 1U);
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = 24;
    copy.Height = 4;
    copy.Depth = 3;
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = in;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = arrays[0];
    EXPECT_OK(cuMemcpy3D(&copy));
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = arrays[0];
    copy.dstArray = arrays[1];
    EXPECT_OK(cuMemcpy3D(&copy));

    CUDA_MEMCPY2D part{};  // the last two elements of rows 1 and 2 of the first slice
    part.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    part.srcArray = arrays[1];
    part.srcXInBytes = 16;
    part.srcY = 1;
    part.dstMemoryType = CU_MEMORYTYPE_HOST;
    part.dstHost = out;
    part.WidthInBytes = 8;
    part.Height = 2;
    EXPECT_OK(cuMemcpy2D(&part));
    EXPECT(out[0] == 11 && out[1] == 12 && out[2] == 17 && out[3] == 18);
    part.srcXInBytes = 17;
    EXPECT_CODE(cuMemcpy2D(&part), CUDA_ERROR_INVALID_VALUE);
    copy.srcZ = 1;
    EXPECT_CODE(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    for (CUarray array : arrays) EXPECT_OK(cuArrayDestroy(array));
    EXPECT_CODE(cuMemcpy2D(&part), CUDA_ERROR_INVALID_HANDLE);
  }));
}

TEST_CASE("a texture tells what it was made of, and there is none of what does not exist") {
  REQUIRE(in_child({}, [] {
    start();
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC how{};
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    CUdeviceptr block = 0;
    EXPECT_OK(cuMemAlloc(&block, 4096));
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {block, CU_AD_FORMAT_FLOAT, 1, 4096};
    how.maxAnisotropy = 3;
    EXPECT_OK(cuTexObjectCreate(&texture, &resource, &how, nullptr));
    EXPECT_CODE(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC told{};
    CUDA_TEXTURE_DESC told_how{};
    CUDA_RESOURCE_VIEW_DESC view{};
    EXPECT_OK(cuTexObjectGetResourceDesc(&told, texture));
    EXPECT_OK(cuTexObjectGetTextureDesc(&told_how, texture));
    EXPECT(told.res.linear.devPtr == block && told_how.maxAnisotropy == 3);
    EXPECT_CODE(cuTexObjectGetResourceViewDesc(&view, texture), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuTexObjectDestroy(texture));
    EXPECT_CODE(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
    resource.res.linear.sizeInBytes = size_t{8} << 20;
    EXPECT_CODE(cuTexObjectCreate(&texture, &resource, &how, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree(block));
  }));
}

TEST_CASE("only managed memory can be advised on and prefetched, in the order of a stream") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr managed = 0;
    CUdeviceptr device = 0;
    CUmemLocation here{};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT_OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAlloc(&device, 8192));
    EXPECT_OK(cuMemAdvise(managed + 4096, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    EXPECT_CODE(cuMemAdvise(managed, 8193, CU_MEM_ADVISE_SET_READ_MOSTLY, here),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemAdvise(device, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemPrefetchAsync(managed, 8192, here, 0, nullptr));
    EXPECT_CODE(cuMemPrefetchAsync(device, 8192, here, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuCtxSynchronize());
  }));
}

TEST_CASE("what an array takes follows from its format, its images and its levels") {
  REQUIRE(in_child({}, [] {
    start();
    constexpr size_t kKiB = 1024;
    const auto expect = [](size_t bytes, unsigned levels, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
      CUDA_ARRAY3D_DESCRIPTOR described = shape;
      CUDA_ARRAY_MEMORY_REQUIREMENTS required{};
      CUmipmappedArray array = nullptr;
      described.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
      EXPECT_OK(cuMipmappedArrayCreate(&array, &described, levels));
      EXPECT_OK(cuMipmappedArrayGetMemoryRequirements(&required, array, 0));
      if (required.size != bytes)
        expectation_failed(__FILE__, __LINE__, "size", static_cast<long long>(required.size));
      EXPECT_OK(cuMipmappedArrayDestroy(array));
    };
    expect(64 * kKiB, 1, {1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0});
    expect(512 * kKiB, 1, {256, 256, 0, CU_AD_FORMAT_HALF, 4, 0});
    expect(512 * kKiB, 1, {256, 256, 0, CU_AD_FORMAT_SNORM_INT16X4, 4, 0});
    expect(128 * kKiB, 1, {512, 512, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0});
    expect(256 * kKiB, 1, {509, 509, 0, CU_AD_FORMAT_BC7_UNORM, 4, 0});
    expect(384 * kKiB, 1, {512, 512, 0, CU_AD_FORMAT_NV12, 3, 0});
    expect(1280 * kKiB, 2, {256, 256, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED});
    expect(1152 * kKiB, 2, {256, 256, 4, CU_AD_FORMAT_FLOAT, 1, 0});
    // A level of one texel is the last: 64 KiB for 256 by 64 texels, and 24 KiB for eight more.
    expect(128 * kKiB, 4000, {256, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0});
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR unknown{64, 64, static_cast<CUarray_format>(0x77), 1};
    EXPECT_CODE(cuArrayCreate(&array, &unknown), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("an array is charged to its device and remembers its shape") {
  REQUIRE(in_child({}, [] {
    start();
    size_t before = 0;
    size_t during = 0;
    size_t after = 0;
    const CUDA_ARRAY_DESCRIPTOR wanted{1024, 1024, CU_AD_FORMAT_FLOAT, 2};
    CUDA_ARRAY_DESCRIPTOR seen{};
    CUarray array = nullptr;
    EXPECT_OK(cuMemGetInfo(&before, nullptr));
    EXPECT_OK(cuArrayCreate(&array, &wanted));
    EXPECT_OK(cuMemGetInfo(&during, nullptr));
    EXPECT(before - during == size_t{8} << 20);
    EXPECT_OK(cuArrayGetDescriptor(&seen, array));
    EXPECT(seen.Width == 1024 && seen.Height == 1024 && seen.NumChannels == 2);
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_CODE(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuMemGetInfo(&after, nullptr));
    EXPECT(before == after);
    const CUDA_ARRAY_DESCRIPTOR impossible{1024, 1024, CU_AD_FORMAT_FLOAT, 3};
    EXPECT_CODE(cuArrayCreate(&array, &impossible), CUDA_ERROR_INVALID_VALUE);
  }));
}
