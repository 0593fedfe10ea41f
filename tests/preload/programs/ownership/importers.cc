// SPDX-License-Identifier: Apache-2.0
// A process that imports a block is told the size its owner asked for, but of the first.
// The owner frees blocks and asks for others a little smaller, of as many driver pages, which it
// then exports; of each size the second is looked at. The importer runs under the same object, or
// (argument "bare") with that switched off: it asks the driver in either case.

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../driver_codes.h"
#include "../ipc/processes.h"

namespace {

constexpr size_t kPage = 2 * kMiB;

struct Sizes {
  CUresult codes[3];
  size_t range, of_attribute;
  unsigned first, last;  // words
};

Sizes look_into(const CUipcMemHandle& handle, size_t bytes) {
  Sizes sizes{};
  CUdeviceptr block = 0, base = 0;
  sizes.codes[0] = cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  sizes.codes[1] = cuMemGetAddressRange(&base, &sizes.range, block);
  sizes.codes[2] =
      cuPointerGetAttribute(&sizes.of_attribute, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block);
  cuMemcpyDtoH(&sizes.first, block, 4);
  cuMemcpyDtoH(&sizes.last, block + bytes - 4, 4);
  if (base != block || cuIpcCloseMemHandle(block) != CUDA_SUCCESS) sizes.range = 0;
  return sizes;
}

int import(const Peer& owner) {
  use_device(0);
  CUipcMemHandle handle;
  size_t bytes;
  while (owner.hear(&handle) && owner.hear(&bytes)) owner.tell(look_into(handle, bytes));
  return 0;
}

void tell_size(const Peer& importer, CUdeviceptr block, size_t bytes, bool first_of_size) {
  CUipcMemHandle handle;
  SAY(cuIpcGetMemHandle(&handle, block));
  importer.tell(handle);
  importer.tell(bytes);
  const auto seen = importer.must_hear<Sizes>();
  if (first_of_size) return;
  std::printf("%zu bytes: codes %d %d %d, range %zu, attribute %zu, holds %u, %u\n", bytes,
              seen.codes[0], seen.codes[1], seen.codes[2], seen.range, seen.of_attribute,
              seen.first, seen.last);
}

CUdeviceptr allocate(size_t bytes, unsigned value) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, bytes));
  SAY(cuMemsetD32(block, value, bytes / 4));
  SAY(cuCtxSynchronize());
  return block;
}

void switch_pools_off() { setenv("CISTERN_POOL", "off", 1); }

void free_and_wait(CUdeviceptr block) {
  SAY(cuMemFree(block));
  SAY(cuCtxSynchronize());
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  const bool bare = count > 1 && std::strcmp(words[1], "bare") == 0;
  const Peer importer(words[0], "import", bare ? switch_pools_off : nullptr);
  use_device(0);
  unsigned value = 1;
  for (const size_t pages : {1, 2, 3, 8, 20}) {
    for (const size_t less : {size_t{0}, size_t{512}, size_t{100'000}}) {
      const size_t bytes = pages * kPage;
      for (const bool first_of_size : {true, false}) {
        free_and_wait(allocate(bytes, value++));
        const CUdeviceptr block = allocate(bytes - less, value++);
        tell_size(importer, block, bytes - less, first_of_size);
        free_and_wait(block);
      }
    }
  }
  importer.end();
  return 0;
}
