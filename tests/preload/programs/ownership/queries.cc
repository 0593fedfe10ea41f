// SPDX-License-Identifier: Apache-2.0
// Everything a program can ask about an address: one story for each kind of block.
// For each kind that a pool may make of an allocation: at its base, inside, at its last byte, one
// past its end, and after its free. Values are printed where they do not depend on where the block
// lies. Arguments: numbers of attributes whose values are not printed.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <thread>
#include <vector>

#include "../driver_codes.h"

namespace {

constexpr CUpointer_attribute kAttributes[] = {
    CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_HOST_POINTER,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    CU_POINTER_ATTRIBUTE_BUFFER_ID,
    CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPED,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
    CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
    // The driver knows none of the others.
    static_cast<CUpointer_attribute>(0),
    static_cast<CUpointer_attribute>(31),
};
constexpr unsigned kCount = std::size(kAttributes);
constexpr unsigned kKnown = kCount - 2;
std::vector<unsigned> g_left_out;

constexpr uint64_t kUntouched = 0x7777777777777777;

// What can be compared of one answer: addresses as distances, identities as being there.
long long comparable(CUpointer_attribute attribute, uint64_t value, CUdeviceptr asked,
                     CUdeviceptr base, CUcontext context) {
  if (value == kUntouched || value == 0) return static_cast<long long>(value);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return value == reinterpret_cast<uint64_t>(context) ? 1 : -1;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return value == asked ? 1 : -1;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return value == base ? 1 : -1;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return value == base / (2 * kMiB) * (2 * kMiB) ? 1 : -1;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return 1;
    default:
      return static_cast<long long>(value);
  }
}

void ask_range(CUdeviceptr asked, CUdeviceptr base) {
  CUdeviceptr start = 1;
  size_t bytes = 2;
  const CUresult both = cuMemGetAddressRange(&start, &bytes, asked);
  std::printf("  range %d: %s, %zu\n", both,
              start == base ? "base"
              : start == 1  ? "-"
                            : "other",
              bytes);
  std::printf(
      "  start alone %d, size alone %d, neither %d\n", cuMemGetAddressRange(&start, nullptr, asked),
      cuMemGetAddressRange(nullptr, &bytes, asked), cuMemGetAddressRange(nullptr, nullptr, asked));
}

void ask_attributes(CUdeviceptr asked, CUdeviceptr base, CUcontext context) {
  uint64_t alone[kCount], together[kCount];
  CUresult codes[kCount];
  CUpointer_attribute names[kCount];
  void* places[kCount];
  for (unsigned i = 0; i < kCount; ++i) {
    alone[i] = together[i] = kUntouched;
    names[i] = kAttributes[i];
    places[i] = &together[i];
    // Half the answers are narrower than what they are read from here.
    codes[i] = cuPointerGetAttribute(&alone[i], names[i], asked);
  }
  std::printf("  attributes %d", cuPointerGetAttributes(kKnown, names, places, asked));
  uint64_t known[kCount];
  for (unsigned i = 0; i < kCount; ++i) {
    known[i] = together[i];
    together[i] = kUntouched;
  }
  std::printf(", %d\n", cuPointerGetAttributes(kCount, names, places, asked));
  for (unsigned i = 0; i < kKnown; ++i) {
    if (known[i] != together[i]) std::printf("  %u differs without unknown ones\n", names[i]);
  }
  for (unsigned i = 0; i < kCount; ++i) {
    if (std::count(g_left_out.begin(), g_left_out.end(), names[i]) != 0) continue;
    std::printf("  %u: %d, %lld, %lld\n", static_cast<unsigned>(names[i]), codes[i],
                comparable(names[i], alone[i], asked, base, context),
                comparable(names[i], together[i], asked, base, context));
  }
}

void ask(const char* where, CUdeviceptr asked, CUdeviceptr base) {
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  std::printf("%s\n", where);
  ask_range(asked, base);
  ask_attributes(asked, base, context);
}

// No other block lives meanwhile, so that what lies around it is unknown to the driver, too.
void ask_everywhere(const char* kind, CUdeviceptr base, size_t bytes) {
  std::printf("%s, %zu bytes\n", kind, bytes);
  ask("base", base, base);
  ask("inside", base + bytes / 2, base);
  ask("last byte", base + bytes - 1, base);
  ask("one past the end", base + bytes, base);
  SAY(cuMemFree(base));
  ask("freed", base, base);
  ask("inside freed", base + bytes / 2, base);
}

void small_blocks() {
  for (const size_t bytes : {size_t{1}, size_t{512}, size_t{700}, size_t{8192}, kMiB - 1}) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, bytes));
    ask("never handed out", block + 3 * kMiB / 2, block);
    ask_everywhere("small", block, bytes);
    SAY(cuCtxSynchronize());
  }
}

// Not where the pages begin.
void beside_another() {
  CUdeviceptr first = 0, second = 0;
  SAY(cuMemAlloc(&first, 700));
  SAY(cuMemAlloc(&second, 700));
  ask("beside another", second + 5, second);
  SAY(cuMemFree(first));
  SAY(cuMemFree(second));
  SAY(cuCtxSynchronize());
}

void whole_blocks() {
  for (const size_t bytes : {kMiB, 3 * kMiB + 3, 8 * kMiB}) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, bytes));
    ask_everywhere("whole", block, bytes);
    SAY(cuCtxSynchronize());
    SAY(cuMemAlloc(&block, bytes - 1000));
    ask_everywhere("smaller than before", block, bytes - 1000);
    SAY(cuCtxSynchronize());
  }
}

void other_memory() {
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  int local = 0;
  SAY(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
  ask("managed", managed + 10, managed);
  SAY(cuMemAllocHost(&pinned, 1000));
  ask("pinned", reinterpret_cast<CUdeviceptr>(pinned) + 10, reinterpret_cast<CUdeviceptr>(pinned));
  ask("the stack", reinterpret_cast<CUdeviceptr>(&local), 0);
  ask("null", 0, 0);
  SAY(cuMemFree(managed));
  SAY(cuMemFreeHost(pinned));
}

void bad_questions(CUdeviceptr block) {
  unsigned value = 1;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* place = &value;
  SAY(cuPointerGetAttribute(nullptr, name, block));
  SAY(cuPointerGetAttributes(0, &name, &place, block));
  SAY(cuPointerGetAttributes(1, nullptr, &place, block));
  SAY(cuPointerGetAttributes(1, &name, nullptr, block));
  SAY(cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
  SAY(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, block));
}

// Without a context, and with another one.
void from_elsewhere(size_t bytes) {
  CUdeviceptr block = 0;
  CUcontext own = nullptr, other = nullptr;
  SAY(cuCtxGetCurrent(&own));
  SAY(cuMemAlloc(&block, bytes));
  std::thread([&] { ask("no context", block + 5, block); }).join();
  SAY(cuCtxCreate(&other, nullptr, 0, 0));
  ask("another context", block + 5, block);
  SAY(cuCtxDestroy(other));
  SAY(cuCtxSetCurrent(own));
  bad_questions(block);
  SAY(cuMemFree(block));
  bad_questions(block);
  SAY(cuCtxSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    g_left_out.push_back(static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10)));
  }
  use_device(0);
  const size_t before = free_memory();
  small_blocks();
  beside_another();
  whole_blocks();
  other_memory();
  from_elsewhere(700);
  from_elsewhere(5 * kMiB);
  std::printf("memory lost: %lld\n", static_cast<long long>(before - free_memory()));
  return 0;
}
