// SPDX-License-Identifier: Apache-2.0
// What another device or process may know is really freed; a refused export changes nothing.
// Whoever registered it is told: the next allocation has another identity. What the driver refused
// leaves memory as it was.

#include <unistd.h>

#include <initializer_list>

#include "../driver_codes.h"

namespace {

constexpr int kRounds = 10;
constexpr size_t kSmall = 64 * 1024, kLarge = 4 * kMiB;

using Tell = CUresult (*)(CUdeviceptr block);

CUresult synchronise_memops(CUdeviceptr block) {
  const unsigned on = 1;
  return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 100);
}

CUresult tokens(CUdeviceptr block) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS pair;
  return cuPointerGetAttribute(&pair, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block);
}

// Beside an attribute that the driver does not know: it refuses the list, and tells the tokens.
CUresult tokens_of_a_refused_list(CUdeviceptr block) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS pair;
  CUpointer_attribute names[] = {static_cast<CUpointer_attribute>(31),
                                 CU_POINTER_ATTRIBUTE_P2P_TOKENS};
  void* places[] = {&pair, &pair};
  return cuPointerGetAttributes(2, names, places, block);
}

CUresult file_of(CUdeviceptr address, size_t bytes) {
  int file = -1;
  const CUresult result =
      cuMemGetHandleForAddressRange(&file, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_SUCCESS) close(file);
  return result;
}

CUresult pages(CUdeviceptr block) { return file_of(block, 8192); }

CUresult ipc_handle(CUdeviceptr block) {
  CUipcMemHandle handle;
  return cuIpcGetMemHandle(&handle, block);
}

CUresult take_synchronisation_back(CUdeviceptr block) {
  const unsigned off = 0;
  return cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block);
}
CUresult wrong_attribute(CUdeviceptr block) {
  const unsigned on = 1;
  return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
}
CUresult no_value(CUdeviceptr block) {
  return cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block);
}
CUresult no_place(CUdeviceptr block) {
  return cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block);
}
CUresult part_of_a_page(CUdeviceptr block) { return file_of(block, 1000); }
CUresult no_handle(CUdeviceptr block) { return cuIpcGetMemHandle(nullptr, block); }

unsigned long long identity(CUdeviceptr block) {
  unsigned long long id = 0;
  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
  return id;
}

// Codes of all rounds; how many blocks had the identity of the one before.
void rounds(const char* what, Tell tell, size_t bytes, bool count_identities) {
  int refused = 0, failures = 0, same = 0;
  unsigned long long last = 0;
  for (int i = 0; i < kRounds; ++i) {
    CUdeviceptr block = 0;
    if (cuMemAlloc(&block, bytes) != CUDA_SUCCESS) ++failures;
    if (identity(block) == last) ++same;
    last = identity(block);
    if (tell(block) != CUDA_SUCCESS) ++refused;
    if (cuMemFree(block) != CUDA_SUCCESS) ++failures;
    if (cuMemFree(block) != CUDA_ERROR_INVALID_VALUE) ++failures;
    if (cuCtxSynchronize() != CUDA_SUCCESS) ++failures;
  }
  std::printf("%s, %zu bytes: %d refused, %d failures\n", what, bytes, refused, failures);
  if (count_identities) std::printf("same identity %d\n", same);
}

// Neighbours of a block that is known outside keep what they hold until they are freed themselves.
void neighbours() {
  CUdeviceptr blocks[8];
  for (CUdeviceptr& block : blocks) SAY(cuMemAlloc(&block, kSmall));
  for (unsigned i = 0; i < 8; ++i) SAY(cuMemsetD32(blocks[i], i, kSmall / 4));
  SAY(synchronise_memops(blocks[3]));
  for (const unsigned i : {3u, 1u, 6u}) SAY(cuMemFree(blocks[i]));
  CUdeviceptr fresh[8];
  for (CUdeviceptr& block : fresh) SAY(cuMemAlloc(&block, kSmall));
  for (CUdeviceptr& block : fresh) SAY(cuMemsetD32(block, 77, kSmall / 4));
  for (const unsigned i : {0u, 2u, 4u, 5u, 7u}) {
    unsigned first = 99, last = 99;
    SAY(cuMemcpyDtoH(&first, blocks[i], 4));
    SAY(cuMemcpyDtoH(&last, blocks[i] + kSmall - 4, 4));
    std::printf("neighbour %u holds %u, %u\n", i, first, last);
    SAY(cuMemFree(blocks[i]));
  }
  for (CUdeviceptr& block : fresh) SAY(cuMemFree(block));
}

}  // namespace

int main() {
  use_device(0);
  const size_t before = free_memory();
  for (const size_t bytes : {kSmall, kLarge}) {
    rounds("told to synchronise", synchronise_memops, bytes, true);
    rounds("tokens", tokens, bytes, true);
    rounds("tokens of a refused list", tokens_of_a_refused_list, bytes, true);
    rounds("pages", pages, bytes, true);
  }
  rounds("IPC handle", ipc_handle, kLarge, true);
  for (const size_t bytes : {kSmall, kLarge}) {
    rounds("synchronisation taken back", take_synchronisation_back, bytes, false);
    rounds("wrong attribute", wrong_attribute, bytes, false);
    rounds("no value", no_value, bytes, false);
    rounds("no place", no_place, bytes, false);
    rounds("part of a page", part_of_a_page, bytes, false);
    rounds("no handle", no_handle, kLarge, false);
  }
  neighbours();
  std::printf("memory lost: %lld\n", static_cast<long long>(before - free_memory()));
  SAY(cuDevicePrimaryCtxRelease(0));
  return 0;
}
