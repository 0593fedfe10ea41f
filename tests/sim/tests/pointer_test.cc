// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdint>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include "support.h"
#include "tests/catch.h"

namespace {

constexpr size_t kUnit = size_t{2} << 20;

// One 64-bit answer; what is not written stays 0x77.
constexpr uint64_t kUntouched = 0x7777777777777777;

uint64_t attribute(CUpointer_attribute which, CUdeviceptr address, CUresult code = CUDA_SUCCESS) {
  uint64_t value = kUntouched;
  EXPECT_CODE(cuPointerGetAttribute(&value, which, address), code);
  return value;
}

struct Answer {
  CUpointer_attribute attribute;
  uint64_t value;
};

// Asks all in one list.
void expect_answers(CUresult code, std::initializer_list<Answer> answers, CUdeviceptr address) {
  std::vector<CUpointer_attribute> names;
  std::vector<uint64_t> values(answers.size(), kUntouched);
  std::vector<void*> places;
  for (const Answer& answer : answers) names.push_back(answer.attribute);
  for (uint64_t& value : values) places.push_back(&value);
  EXPECT_CODE(cuPointerGetAttributes(static_cast<unsigned>(names.size()), names.data(),
                                     places.data(), address),
              code);
  size_t i = 0;
  for (const Answer& answer : answers) {
    if (values[i] != answer.value) {
      expectation_failed(__FILE__, __LINE__, "answer", answer.attribute);
    }
    ++i;
  }
}

// A 32-bit answer.
constexpr uint64_t half(int value) { return 0x7777777700000000 | static_cast<uint32_t>(value); }

// The driver has none of this number.
constexpr auto kUnknownAttribute = static_cast<CUpointer_attribute>(31);

}  // namespace

TEST_CASE("queries tell one story for base, interior and end") {
  REQUIRE(in_child({}, [] {
    const CUcontext context = start();
    for (const size_t bytes : {size_t{1000}, 5 * kUnit + 3}) {
      const CUdeviceptr base = new_block(bytes);
      for (const CUdeviceptr inside : {base, base + bytes / 2, base + bytes - 1}) {
        CUdeviceptr start_address = 0;
        size_t size = 0;
        EXPECT_OK(cuMemGetAddressRange(&start_address, &size, inside));
        EXPECT(start_address == base && size == bytes);
        EXPECT_OK(
            cuPointerGetAttribute(&start_address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
        EXPECT_OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
        EXPECT(start_address == base && size == bytes);
        CUcontext owner = nullptr;
        EXPECT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
        EXPECT(owner == context);
      }
    }
    unsigned type = 77;
    CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* out = &type;
    EXPECT_OK(cuPointerGetAttributes(1, &wanted, &out, reinterpret_cast<CUdeviceptr>(&type)));
    EXPECT(type == 0);
  }));
}

TEST_CASE("of an unknown address the range is nothing, written as such") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr block = new_block(1000);
    const auto expect = [](CUresult code, CUdeviceptr address) {
      CUdeviceptr base = 1;
      size_t bytes = 2;
      EXPECT_CODE(cuMemGetAddressRange(&base, nullptr, address), code);
      EXPECT_CODE(cuMemGetAddressRange(nullptr, &bytes, address), code);
      EXPECT(base == 0 && bytes == 0);
      EXPECT_OK(cuMemGetAddressRange(nullptr, nullptr, address));
    };
    expect(CUDA_ERROR_NOT_FOUND, block + 1000);
    expect(CUDA_ERROR_NOT_FOUND, reinterpret_cast<CUdeviceptr>(&block));
    std::thread([&] { expect(CUDA_ERROR_INVALID_CONTEXT, block); }).join();
  }));
}

TEST_CASE("a list with an unknown attribute is refused, and the others are told") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr block = new_block(1000);
    expect_answers(CUDA_ERROR_INVALID_VALUE,
                   {{kUnknownAttribute, kUntouched},
                    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, 1000},
                    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, half(CU_MEMORYTYPE_DEVICE)},
                    {CU_POINTER_ATTRIBUTE_HOST_POINTER, 0}},
                   block);
    expect_answers(CUDA_SUCCESS, {{CU_POINTER_ATTRIBUTE_RANGE_SIZE, 1000}}, block);
    EXPECT(attribute(kUnknownAttribute, block, CUDA_ERROR_INVALID_VALUE) == kUntouched);
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_RANGE_SIZE;
    void* place = &name;
    EXPECT_CODE(cuPointerGetAttributes(0, &name, &place, block), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("of an unknown address a list tells nothing, and the address as its own alias") {
  REQUIRE(in_child({}, [] {
    start();
    int local = 0;
    const auto stack = reinterpret_cast<CUdeviceptr>(&local);
    expect_answers(CUDA_SUCCESS,
                   {{CU_POINTER_ATTRIBUTE_CONTEXT, 0},
                    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, half(0)},
                    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 0},
                    {CU_POINTER_ATTRIBUTE_HOST_POINTER, stack},
                    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, half(-2)},
                    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, kUntouched},
                    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, kUntouched},
                    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 0},
                    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 0}},
                   stack);
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, stack, CUDA_ERROR_INVALID_VALUE) ==
           kUntouched);
  }));
}

TEST_CASE("the mapping is the 2 MiB pages in which an allocation lies") {
  REQUIRE(in_child({}, [] {
    start();
    const auto expect = [](CUdeviceptr block, size_t bytes) {
      EXPECT(attribute(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, block) == bytes);
      EXPECT(attribute(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, block) == block / kUnit * kUnit);
    };
    expect(new_block(1), kUnit);
    expect(new_block(1000), kUnit);  // beside the first
    expect(new_block(kUnit / 2), kUnit);
    expect(new_block(3145731), 2 * kUnit);
    expect(new_block(4 * kUnit), 4 * kUnit);
    CUdeviceptr managed = 0;
    void* pinned = nullptr;
    EXPECT_OK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAllocHost(&pinned, 1000));
    expect(managed, kUnit);
    expect(reinterpret_cast<CUdeviceptr>(pinned), kUnit);
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, managed) == 1000);
  }));
}

TEST_CASE("what only device, host or managed memory can do is told of it alone") {
  REQUIRE(in_child({}, [] {
    start();
    CUdeviceptr managed = 0;
    void* pinned = nullptr;
    const CUdeviceptr block = new_block(1000);
    EXPECT_OK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAllocHost(&pinned, 1000));
    const auto host = reinterpret_cast<CUdeviceptr>(pinned);
    for (const auto which : {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                             CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
                             CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE}) {
      EXPECT(attribute(which, block) == half(1));
      EXPECT(attribute(which, managed) == half(0));
      EXPECT(attribute(which, host) == half(0));
    }
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed) == half(1));
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, managed + 10) == managed + 10);
    EXPECT(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, block, CUDA_ERROR_INVALID_VALUE) == 0);
    std::thread([=] {
      EXPECT(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, block, CUDA_ERROR_INVALID_CONTEXT) ==
             0);
      EXPECT(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, block) == 1000);
    }).join();
  }));
}

TEST_CASE("an allocation is told to synchronise, or is when its tokens are asked for") {
  REQUIRE(in_child({}, [] {
    start();
    const CUdeviceptr told = new_block(1000), asked = new_block(1000), neighbour = new_block(1000);
    const auto synchronises = [](CUdeviceptr block) {
      int value = -1;
      EXPECT_OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
      return value;
    };
    const unsigned on = 1, off = 0;
    EXPECT_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, told + 999));
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
    EXPECT_OK(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, asked));
    EXPECT(tokens.p2pToken != 0 && tokens.vaSpaceToken != 0);
    EXPECT(synchronises(told) == 1 && synchronises(asked) == 1 && synchronises(neighbour) == 0);
    EXPECT_OK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, told));
    EXPECT(synchronises(told) == 0);
    EXPECT_CODE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, told + 1000),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, told),
                CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("whole pages of one allocation have a file descriptor") {
  REQUIRE(in_child({}, [] {
    start();
    constexpr auto kType = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    const CUdeviceptr block = new_block(3 * kUnit);
    int file = -1;
    EXPECT_OK(cuMemGetHandleForAddressRange(&file, block + 4096, 8192, kType, 0));
    EXPECT(file >= 0 && close(file) == 0);
    for (const auto& [address, bytes] : {std::pair{block + 512, size_t{4096}},
                                         {block, size_t{1000}},
                                         {block, size_t{0}},
                                         {block, 3 * kUnit + 4096},
                                         {CUdeviceptr{4096}, size_t{4096}}}) {
      EXPECT_CODE(cuMemGetHandleForAddressRange(&file, address, bytes, kType, 0),
                  CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_CODE(cuMemGetHandleForAddressRange(nullptr, block, 4096, kType, 0),
                CUDA_ERROR_INVALID_VALUE);
    void* pinned = nullptr;
    EXPECT_OK(cuMemAllocHost(&pinned, 4096));
    EXPECT_CODE(
        cuMemGetHandleForAddressRange(&file, reinterpret_cast<CUdeviceptr>(pinned), 4096, kType, 0),
        CUDA_ERROR_NOT_SUPPORTED);
  }));
}
