// SPDX-License-Identifier: Apache-2.0
// What the scratch cache keeps is there for every kind of request, without a needless wait.
// Memory that was freed in stream order and is then wanted in other ways. The argument chooses.

#include <atomic>
#include <cstring>
#include <thread>

#include "scratch_blocks.h"

namespace {

constexpr size_t kMost = 200 * kMiB;

// Most of the device is freed in stream order and then asked for in every way.
void shortage() {
  const CUstream stream = new_stream(), other = new_stream();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr block = 0;
  const auto fill_up = [&] {
    put(get(kMost, stream), stream);
    finish(stream);
    say_free_memory();
  };
  fill_up();
  SAY(cuMemAlloc(&block, kMost));
  SAY(cuMemFree(block));
  fill_up();
  SAY(cuMemAllocManaged(&block, kMost, CU_MEM_ATTACH_GLOBAL));
  SAY(cuMemFree(block));
  fill_up();
  SAY(cuMemCreate(&handle, kMost, &properties, 0));
  SAY(cuMemRelease(handle));
  fill_up();
  put(get(kMost, other), other);
  SAY(cuStreamSynchronize(other));
  fill_up();
  SAY(cuMemAllocFromPoolAsync(&block, kMost, current_pool(), other));
  put(block, other);
  SAY(cuStreamSynchronize(other));
  // The frees would have been reached long ago: what was handed over later must not stand before.
  const CUdeviceptr small = get(kMiB, stream);
  put(get(kMost, stream), stream);
  finish(stream);
  SAY(cuMemsetD32Async(small, 7, 16, stream));
  SAY(cuMemAlloc(&block, kMost));
  SAY(cuMemFree(block));
  put(small, stream);
  // What is said to be free can be had as physical memory, whatever sizes were freed.
  for (const size_t bytes : {5 * kMiB, 3 * kMiB, 7 * kMiB}) put(get(bytes, other), other);
  finish(other);
  size_t free = 0, total = 0;
  SAY(cuMemGetInfo(&free, &total));
  SAY(cuMemCreate(&handle, free, &properties, 0));
  SAY(cuMemRelease(handle));
}

// The stream is of another device than the current context.
void shortage_abroad() {
  use_device(1);
  const CUstream stream = new_stream(), other = new_stream();
  put(get(kMost, stream), stream);
  finish(stream);
  use_device(0);
  CUdeviceptr block = 0;
  SAY(cuMemAllocAsync(&block, kMost, other));
  SAY(cuMemFreeAsync(block, other));
  finish(other);
  SAY(cuCtxSetCurrent(nullptr));
  SAY(cuMemAllocAsync(&block, kMost, stream));
}

// Out of memory is answered although the stream's work waits for the host.
void shortage_while_the_device_waits() {
  static std::atomic<bool> go{false};
  const CUstream stream = new_stream();
  CUdeviceptr held = 0, block = 0;
  SAY(cuMemAlloc(&held, 200 * kMiB));
  put(get(8 * kMiB, stream), stream);
  SAY(cuLaunchHostFunc(
      stream,
      [](void*) {
        while (!go) std::this_thread::yield();
      },
      nullptr));
  SAY(cuMemAlloc(&block, 100 * kMiB));
  go = true;
  SAY(cuStreamSynchronize(stream));
  SAY(cuMemFree(held));
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const auto is = [what](const char* name) { return std::strcmp(what, name) == 0; };
  use_device(0);
  if (is("here")) shortage();
  if (is("abroad")) shortage_abroad();
  if (is("waiting-device")) shortage_while_the_device_waits();
  return 0;
}
