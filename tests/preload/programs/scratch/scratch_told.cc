// SPDX-License-Identifier: Apache-2.0
// What is told of a cached block's address, or of one that serves a smaller request.
// What the driver tells of stream-ordered blocks that are held, have been freed, or are had anew;
// and what other devices may know is really freed.

#include <unistd.h>

#include "scratch_blocks.h"

namespace {

constexpr size_t kBytes = 8 * kMiB;

void say_attributes(CUdeviceptr block, CUdeviceptr address) {
  CUdeviceptr start = 0, mapping = 0;
  size_t bytes = 0, mapped = 0;
  unsigned type = 0;
  const CUresult codes[] = {
      cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address),
      cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address),
      cuPointerGetAttribute(&mapping, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address),
      cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address),
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)};
  for (const CUresult code : codes) std::printf("%d ", code);
  if (codes[0] == CUDA_SUCCESS) {
    std::printf("offset %lld, %zu bytes; mapping %lld, %zu bytes; type %u",
                static_cast<long long>(block - start), bytes,
                static_cast<long long>(block - mapping), mapped, type);
  }
  std::printf("\n");
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  bytes = 7;
  type = 7;
  void* answers[] = {&bytes, &type};
  const CUresult code = cuPointerGetAttributes(2, asked, answers, address);
  std::printf("%d: %zu bytes, type %u\n", code, bytes, type);
  const CUresult range = cuMemGetAddressRange(&start, &bytes, address);
  std::printf("range %d: %s, %zu bytes\n", range, start == block ? "block" : "other", bytes);
}

void told(CUstream stream) {
  CUdeviceptr block = get(kBytes, stream);
  say_attributes(block, block);
  say_attributes(block, block + kBytes - 1);
  put(block, stream);
  finish(stream);
  say_attributes(block, block);
  const unsigned on = 1;
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block));
  block = get(kBytes - 3 * kMiB, stream);
  say_attributes(block, block);
  say_attributes(block, block + kMiB);
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
  put(block, stream);
  SAY(cuStreamSynchronize(stream));
}

CUresult synchronise_memops(CUdeviceptr block) {
  const unsigned on = 1;
  return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block + 100);
}

CUresult tokens(CUdeviceptr block) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS pair;
  return cuPointerGetAttribute(&pair, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block);
}

CUresult pages(CUdeviceptr block) {
  int file = -1;
  const CUresult result =
      cuMemGetHandleForAddressRange(&file, block, 8192, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result == CUDA_SUCCESS) close(file);
  return result;
}

// Whoever registered the memory learns of its end: the next block has another identity.
void known_outside(const char* what, CUresult (*tell)(CUdeviceptr), CUstream stream) {
  int same = 0;
  unsigned long long last = 0, id = 0;
  CUresult code = CUDA_SUCCESS;
  for (int i = 0; i < 3; ++i) {
    const CUdeviceptr block = get(kBytes, stream);
    cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block);
    same += id == last;
    last = id;
    code = tell(block);
    put(block, stream);
    finish(stream);
  }
  std::printf("%s: %d, same identity %d\n", what, code, code == CUDA_SUCCESS ? same : 0);
  SAY(cuStreamSynchronize(stream));
}

}  // namespace

int main() {
  use_device(0);
  const CUstream stream = new_stream();
  told(stream);
  known_outside("told to synchronise", synchronise_memops, stream);
  known_outside("tokens", tokens, stream);
  known_outside("pages", pages, stream);
  return 0;
}
