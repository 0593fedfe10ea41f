// SPDX-License-Identifier: Apache-2.0
// A cap on every kind of memory: sizes, codes, last error; what is free can be had in one piece.
// Fills a small device with every kind of memory and with all of them mixed, and asks each time
// what there is. A process with a cap of that size on a larger device must be told the same.

#include <vector>

#include "../kinds.h"

namespace {

void info() {
  size_t free_bytes = 0, total = 0, of_device = 0;
  SAY(cuMemGetInfo(&free_bytes, &total));
  SAY(cuDeviceTotalMem(&of_device, 0));
  std::printf("free %zu KiB of %zu KiB, the device has %zu KiB\n", free_bytes >> 10, total >> 10,
              of_device >> 10);
}

size_t free_now() {
  size_t bytes = 0;
  SAY(cuMemGetInfo(&bytes, nullptr));
  return bytes;
}

void fill(const Kind& kind, size_t bytes) {
  std::vector<Piece> pieces;
  Piece piece;
  CUresult code;
  while ((code = allocate(kind, &piece, bytes)) == CUDA_SUCCESS) pieces.push_back(piece);
  std::printf("%s: %zu of %zu KiB, then %d\n", kind.name, pieces.size(), bytes >> 10, code);
  info();
  for (Piece& held : pieces) {
    if (kind.free(&held) != CUDA_SUCCESS) std::printf("a free failed\n");
  }
  SAY(cuCtxSynchronize());
  info();
}

// What is said to be free can be had in one piece, of any kind, whatever else is held.
void fit(const Kind& first, const Kind& second) {
  Piece some, rest, more;
  std::printf("%s beside %s\n", second.name, first.name);
  SAY(allocate(first, &some, 20 * kMiB));
  SAY(allocate(second, &rest, free_now()));
  SAY(allocate(first, &more, 2 * kMiB));
  SAY(allocate(second, &more, 2 * kMiB));
  info();
  SAY(first.free(&some));
  SAY(cuCtxSynchronize());
  info();
  SAY(second.free(&rest));
}

// Memory that pools keep is not in the way of the others.
void after_idle(const Kind& kind) {
  CUdeviceptr block = 0;
  Piece piece;
  SAY(cuMemAlloc(&block, 50 * kMiB));
  SAY(cuMemFree(block));
  SAY(allocate(kind, &piece, 40 * kMiB));
  info();
  SAY(kind.free(&piece));
}

void of_odd_sizes(const Kind& kind) {
  for (const size_t bytes : {size_t{0}, 66 * kMiB, size_t{1} << 40}) {
    Piece piece;
    const CUresult code = allocate(kind, &piece, bytes);
    std::printf("%s of %zu MiB: %d\n", kind.name, bytes / kMiB, code);
    if (code == CUDA_SUCCESS) SAY(kind.free(&piece));
  }
}

void refused_for_other_reasons() {
  CUdeviceptr block = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = kinds::on_device(0), nowhere = kinds::on_device(7);
  const auto no_stream = reinterpret_cast<CUstream>(&block);
  size_t pitch = 0;
  SAY(cuMemAllocAsync(nullptr, kMiB, nullptr));
  SAY(cuMemAllocAsync(&block, 100 * kMiB, no_stream));
  SAY(cuMemAllocAsync(&block, kMiB, no_stream));
  SAY(cuMemAllocPitch(&block, nullptr, 512, 512, 4));
  SAY(cuMemAllocPitch(&block, &pitch, 512, 1 << 20, 5));
  SAY(cuMemCreate(nullptr, 2 * kMiB, &properties, 0));
  SAY(cuMemCreate(&handle, 100 * kMiB, nullptr, 0));
  SAY(cuMemCreate(&handle, 100 * kMiB + 1, &properties, 0));
  SAY(cuMemCreate(&handle, 100 * kMiB, &properties, 1));
  SAY(cuMemCreate(&handle, 100 * kMiB, &nowhere, 0));
  SAY(cuDeviceTotalMem(nullptr, 0));
  SAY(cuDeviceTotalMem(&pitch, 7));
  SAY(cuMemGetInfo(nullptr, nullptr));
  SAY(cuMemFree(12345));
  SAY(cuArrayDestroy(nullptr));
}

// What the driver does not take back is still held.
void refused_frees() {
  CUdeviceptr block = 0;
  const auto no_stream = reinterpret_cast<CUstream>(&block);
  SAY(cuMemAllocAsync(&block, 20 * kMiB, nullptr));
  SAY(cuMemFreeAsync(block, no_stream));
  info();
  SAY(cuMemFree(block + 512));
  SAY(cuMemFree(block));
  info();
}

// A capture forbids the call before anybody looks for room, and the call ends the capture; in a
// relaxed one it is allowed.
void no_room_in_a_capture(CUstreamCaptureMode mode) {
  CUstream stream = nullptr;
  CUdeviceptr held = 0, block = 0;
  CUgraph graph = nullptr;
  size_t pitch = 0;
  const CUDA_ARRAY_DESCRIPTOR shape{1024, 10 * 256, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  const CUmemAllocationProp properties = kinds::on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuMemAlloc(&held, 60 * kMiB));
  for (int i = 0; i < 5; ++i) {
    SAY(cuStreamBeginCapture(stream, mode));
    if (i == 1) SAY(cuMemAlloc(&block, 10 * kMiB));
    if (i == 2) SAY(cuMemAllocPitch(&block, &pitch, 1024, 10 * 1024, 4));
    if (i == 3) SAY(cuArrayCreate(&array, &shape));
    if (i == 4) SAY(cuMemCreate(&handle, 10 * kMiB, &properties, 0));
    if (SAY(cuStreamEndCapture(stream, &graph)) == CUDA_SUCCESS) SAY(cuGraphDestroy(graph));
  }
  SAY(cuMemFree(held));
  SAY(cuStreamDestroy(stream));
  info();
}

// Where a capture allows the call, what pools keep is there for it; stream-ordered memory is
// allowed in any capture of another stream, which goes on.
void after_idle_in_a_capture(const Kind& kind, CUstreamCaptureMode mode) {
  CUstream stream = nullptr;
  CUdeviceptr block = 0;
  CUgraph graph = nullptr;
  Piece piece;
  std::printf("%s in a capture\n", kind.name);
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuMemAlloc(&block, 50 * kMiB));
  SAY(cuMemFree(block));
  SAY(cuStreamBeginCapture(stream, mode));
  const CUresult code = SAY(allocate(kind, &piece, 40 * kMiB));
  if (SAY(cuStreamEndCapture(stream, &graph)) == CUDA_SUCCESS) SAY(cuGraphDestroy(graph));
  if (code == CUDA_SUCCESS) SAY(kind.free(&piece));
  SAY(cuStreamDestroy(stream));
  SAY(cuCtxSynchronize());
  info();
}

// Managed and pinned memory are no device's.
void not_of_the_device() {
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  SAY(cuMemAllocManaged(&managed, 100 * kMiB, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemHostAlloc(&pinned, 100 * kMiB, 0));
  info();
  SAY(cuMemFree(managed));
  SAY(cuMemFreeHost(pinned));
}

}  // namespace

int main() {
  use_device(0);
  info();
  for (const Kind& kind : kinds::kAll) {
    fill(kind, 6 * kMiB);
    fill(kind, 2 * kMiB);
    of_odd_sizes(kind);
    after_idle(kind);
  }
  for (const Kind& first : kinds::kAll) {
    for (const Kind& second : kinds::kAll) fit(first, second);
  }
  refused_for_other_reasons();
  refused_frees();
  no_room_in_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  no_room_in_a_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  for (const Kind& kind : kinds::kAll) {
    after_idle_in_a_capture(kind, CU_STREAM_CAPTURE_MODE_RELAXED);
    after_idle_in_a_capture(kind, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
  not_of_the_device();
  info();
  return 0;
}
