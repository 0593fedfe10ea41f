// SPDX-License-Identifier: Apache-2.0
// Memory: in which steps it is taken and when it comes back, what pinned memory is like, and what
// the calls that a pool saves would have cost.
//
//   steps       of plain and of stream-ordered memory
//   async       memory of cuMemAlloc that goes by cuMemFreeAsync
//   pinned      sizes, codes and prices of pinned memory
//   captures    what a capture forbids of it
//   events      prices of launches and events
//   virtual     prices of virtual memory, and whether kernels run as fast on it
//   reset       whether stream-ordered memory outlives its context
#include <cuda_runtime.h>

#include <vector>

#include "../preload/programs/kernels.cuh"
#include "facts.h"

namespace {

using namespace facts;

double mib(size_t before, size_t after) {
  return (static_cast<double>(before) - static_cast<double>(after)) / static_cast<double>(kMiB);
}

// values[i] += values[i]
void twice(float* values, size_t count, cudaStream_t stream = nullptr) {
  const auto blocks = static_cast<unsigned>((count + 255) / 256);
  add_vectors<<<blocks, 256, 0, stream>>>(values, values, values, static_cast<int>(count));
}

// cuMemFreeAsync of memory of cuMemAlloc beside work that goes on: is it there at once?
void free_async_beside_work(const timed::Worker& at) {
  const size_t before = free_memory();
  CUdeviceptr block = new_block(1024 * kMiB);
  MUST(cuCtxSynchronize());
  timed::Held work(at.kernels, at.stream);
  const CUstream stream = timed::new_stream();
  fact(cuMemFreeAsync(block, stream), "plain_free_async.code");
  MUST(cuStreamSynchronize(stream));
  fact(mib(before, free_memory()), "plain_free_async.missing_mib_beside_work");
  CUdeviceptr again = 0;
  const size_t most = free_memory() / kMiB * kMiB;
  size_t got = most;
  while (got > 0 && cuMemAlloc(&again, got) != CUDA_SUCCESS)
    got -= got > 64 * kMiB ? 64 * kMiB : got;
  fact(mib(most, got), "plain_free_async.told_but_refused_mib");
  work.end();
  if (again != 0) MUST(cuMemFree(again));
  MUST(cuCtxSynchronize());
  fact(mib(before, free_memory()), "plain_free_async.missing_mib_after_work");
  MUST(cuStreamDestroy(stream));
}

// The same without a wait for the stream, of many blocks of a size; and behind work of the stream.
void free_async_at_once(const timed::Worker& at) {
  for (const size_t bytes : {size_t{4096}, kMiB, 20 * kMiB, 256 * kMiB}) {
    const size_t count = 512 * kMiB / bytes < 64 ? 512 * kMiB / bytes : 64;
    std::vector<CUdeviceptr> blocks(count);
    const size_t before = free_memory();
    const auto tell = [&](const char* when) {
      fact(mib(before, free_memory()), "plain_free_async.missing_mib.%s.%zu", when, bytes);
    };
    const auto free_all = [&](CUstream stream) {
      for (CUdeviceptr& block : blocks) block = new_block(bytes);
      MUST(cuCtxSynchronize());
      timed::Held work(at.kernels, at.stream);
      for (const CUdeviceptr block : blocks) MUST(cuMemFreeAsync(block, stream));
      tell(stream == at.stream ? "its_stream_busy" : "at_once");
      work.end();
      MUST(cuStreamSynchronize(stream));
      tell(stream == at.stream ? "its_stream_done" : "other_stream_done");
      MUST(cuCtxSynchronize());
    };
    const CUstream other = timed::new_stream();
    free_all(other);
    free_all(at.stream);
    MUST(cuStreamDestroy(other));
  }
}

void free_async(CUcontext context) {
  const timed::Worker at(context);
  { timed::Held(at.kernels, at.stream).end(); }  // loads the kernel
  free_async_beside_work(at);
  free_async_at_once(at);
}

// How much of the device single blocks cost, and how many share a page.
void steps_of_plain_memory() {
  for (const size_t bytes : {size_t{1}, size_t{65536}, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB, 3 * kMiB,
                             5 * kMiB, 33 * kMiB}) {
    std::vector<CUdeviceptr> blocks(64);
    const size_t before = free_memory();
    for (CUdeviceptr& block : blocks) MUST(cuMemAlloc(&block, bytes));
    fact(mib(before, free_memory()) / 64, "plain_memory.mib_a_block.%zu", bytes);
    for (const CUdeviceptr block : blocks) MUST(cuMemFree(block));
  }
}

// In which steps stream-ordered memory takes pages, and when it gives them back.
void steps_of_stream_ordered_memory() {
  CUdeviceptr block = 0;
  for (const size_t bytes : {size_t{512}, kMiB, 20 * kMiB, 33 * kMiB, 500 * kMiB}) {
    const size_t before = free_memory();
    MUST(cuMemAllocAsync(&block, bytes, nullptr));
    MUST(cuStreamSynchronize(nullptr));
    fact(mib(before, free_memory()), "pool_memory.mib_of_first.%zu", bytes);
    MUST(cuMemFreeAsync(block, nullptr));
    MUST(cuStreamSynchronize(nullptr));
    fact(mib(before, free_memory()), "pool_memory.mib_kept_after.%zu", bytes);
  }
}

// Pinned memory: sizes, codes and prices.
void pinned_memory(CUcontext) {
  static int not_pinned;
  void* block = nullptr;
  for (const size_t bytes : {size_t{512}, size_t{65536}, kMiB, 16 * kMiB, 256 * kMiB}) {
    fact(microseconds([&] { MUST(cuMemHostAlloc(&block, bytes, 0)); }), "pinned.alloc_us.%zu",
         bytes);
    fact(microseconds([&] { MUST(cuMemFreeHost(block)); }), "pinned.free_us.%zu", bytes);
  }
  unsigned flags = 0;
  MUST(cuMemHostAlloc(&block, 8192, 0));
  char* inside = static_cast<char*>(block) + 100;
  void* next = nullptr;
  MUST(cuMemHostAlloc(&next, 100, 0));
  const auto alignment = [](void* at) {
    const auto address = reinterpret_cast<size_t>(at);
    return static_cast<double>(address & -address);
  };
  fact(alignment(block), "pinned.aligned_to");
  fact(alignment(next), "pinned.next_aligned_to");
  fact(static_cast<double>(reinterpret_cast<intptr_t>(next)) -
           static_cast<double>(reinterpret_cast<intptr_t>(block)),
       "pinned.next_is_behind_by");
  MUST(cuMemFreeHost(next));
  fact(cuMemFreeHost(inside), "pinned.free_inside.code");
  fact(cuMemHostGetFlags(&flags, inside), "pinned.flags_inside.code");
  fact(flags, "pinned.flags");
  CUdeviceptr address = 0;
  fact(cuMemHostGetDevicePointer(&address, inside, 0), "pinned.device_pointer_inside.code");
  fact(address == reinterpret_cast<CUdeviceptr>(inside), "pinned.same_address");
  fact(cuMemHostRegister(inside, 4096, 0), "pinned.register_inside.code");
  fact(cuMemHostUnregister(block), "pinned.unregister.code");
  CUdeviceptr base = 0;
  size_t size = 0;
  fact(cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(inside)),
       "pinned.address_range.code");
  fact(static_cast<double>(size), "pinned.address_range.size");
  fact(
      [&] {
        for (int i = 0; i < 8192; ++i) {
          if (static_cast<char*>(block)[i] != 0) return 0;
        }
        return 1;
      }(),
      "pinned.zeroed");
  MUST(cuMemFreeHost(block));
  fact(cuMemFreeHost(block), "pinned.free_again.code");
  fact(cuMemFreeHost(nullptr), "pinned.free_null.code");
  fact(cuMemHostAlloc(&block, 0, 0), "pinned.nothing.code");
  fact(static_cast<double>(reinterpret_cast<size_t>(block)), "pinned.nothing.address");
  fact(cuMemAllocHost(&block, 0), "pinned.nothing_v2.code");
  fact(cuMemHostAlloc(&block, 4096, 0x40), "pinned.unknown_flag.code");
  fact(cuMemHostAlloc(nullptr, 4096, 0), "pinned.no_place.code");
  fact(cuMemHostAlloc(&block, size_t{1} << 46, 0), "pinned.too_large.code");
  fact(cuMemFreeHost(&not_pinned), "pinned.free_of_malloc.code");
  fact(
      [] {
        CUdeviceptr device = 0;
        MUST(cuMemAlloc(&device, 4096));
        const CUresult code = cuMemFreeHost(reinterpret_cast<void*>(device));
        if (code != CUDA_SUCCESS) MUST(cuMemFree(device));
        return code;
      }(),
      "pinned.free_of_device.code");
  fact(
      [&] {
        MUST(cuMemHostAlloc(&block, 4096, 0));
        const CUresult code = cuMemFree(reinterpret_cast<CUdeviceptr>(block));
        if (code != CUDA_SUCCESS) MUST(cuMemFreeHost(block));
        return code;
      }(),
      "pinned.free_as_device.code");
}

// Whether a capture forbids what a pool would do beside it.
void captures(CUcontext) {
  CUstream stream = nullptr;
  void *before = nullptr, *during = nullptr;
  const auto capture = [&](CUstreamCaptureMode mode, const std::function<void()>& run) {
    MUST(cuStreamBeginCapture(stream, mode));
    run();
    CUgraph graph = nullptr;
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) MUST(cuGraphDestroy(graph));
  };
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemHostAlloc(&before, 4096, 0));
  CUresult freed = CUDA_SUCCESS;
  capture(CU_STREAM_CAPTURE_MODE_GLOBAL,
          [&] { fact(cuMemHostAlloc(&during, 4096, 0), "capture.global.cuMemHostAlloc.code"); });
  capture(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] {
    freed = cuMemFreeHost(before);
    fact(freed, "capture.global.cuMemFreeHost.code");
  });
  if (freed == CUDA_SUCCESS) MUST(cuMemHostAlloc(&before, 4096, 0));
  capture(CU_STREAM_CAPTURE_MODE_RELAXED, [&] {
    fact(cuMemFreeHost(before), "capture.relaxed.cuMemFreeHost.code");
    fact(cuMemHostAlloc(&during, 4096, 0), "capture.relaxed.cuMemHostAlloc.code");
  });
  MUST(cuStreamDestroy(stream));
}

// What a mark costs: an event behind each launch, a look at it.
void events(CUcontext) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  float* value = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  cudaMalloc(&value, sizeof(float));
  const auto launch = [&] { twice(value, 1, stream); };
  fact(each(500, launch), "events.launch_us");
  MUST(cuCtxSynchronize());
  fact(each(500,
            [&] {
              launch();
              MUST(cuEventRecord(event, stream));
            }),
       "events.launch_and_record_us");
  MUST(cuCtxSynchronize());
  fact(each(500, [&] { MUST(cuEventRecord(event, stream)); }), "events.record_us");
  MUST(cuCtxSynchronize());
  fact(each(500, [&] { (void)cuEventQuery(event); }), "events.query_us");
  fact(each(500,
            [&] {
              CUevent one = nullptr;
              MUST(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
              MUST(cuEventDestroy(one));
            }),
       "events.create_destroy_us");
  fact(each(100, [] { (void)free_memory(); }), "events.memory_info_us");
  cudaFree(value);
}

// Prices of virtual memory, and whether kernels run as fast on it.
double gigabytes_a_second(float* values, size_t bytes) {
  const auto pass = [&] { twice(values, bytes / sizeof(float)); };
  pass();
  MUST(cuCtxSynchronize());
  const double us = microseconds([&] {
    for (int i = 0; i < 20; ++i) pass();
    MUST(cuCtxSynchronize());
  });
  return 20.0 * 2 * static_cast<double>(bytes) / us / 1000;
}

void virtual_memory(CUcontext) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t unit = 0;
  MUST(cuMemGetAllocationGranularity(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  fact(static_cast<double>(unit), "virtual.unit_bytes");
  for (const size_t bytes : {2 * kMiB, 20 * kMiB, 64 * kMiB, 512 * kMiB}) {
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    const std::pair<const char*, std::function<void()>> steps[] = {
        {"reserve", [&] { MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0)); }},
        {"create", [&] { MUST(cuMemCreate(&handle, bytes, &kind, 0)); }},
        {"map", [&] { MUST(cuMemMap(at, bytes, 0, handle, 0)); }},
        {"access", [&] { MUST(cuMemSetAccess(at, bytes, &access, 1)); }},
        {"pass",
         [&] {
           if (bytes == 512 * kMiB) {
             fact(gigabytes_a_second(reinterpret_cast<float*>(at), bytes), "virtual.gb_a_second");
           }
         }},
        {"unmap", [&] { MUST(cuMemUnmap(at, bytes)); }},
        {"release", [&] { MUST(cuMemRelease(handle)); }},
        {"free", [&] { MUST(cuMemAddressFree(at, bytes)); }}};
    for (const auto& [step, run] : steps) {
      const double us = microseconds(run);
      if (step[0] != 'p') fact(us, "virtual.us.%s.%zu", step, bytes / kMiB);
    }
  }
  CUdeviceptr plain = 0;
  MUST(cuMemAlloc(&plain, 512 * kMiB));
  fact(gigabytes_a_second(reinterpret_cast<float*>(plain), 512 * kMiB), "plain.gb_a_second");
  MUST(cuMemFree(plain));
}

// Whether stream-ordered memory outlives the end of its context.
void reset_with_stream_ordered_memory(CUcontext) {
  MUST(cuCtxSynchronize());
  const size_t before = free_memory();
  CUdeviceptr block = 0, plain = 0;
  MUST(cuMemAllocAsync(&block, 512 * kMiB, nullptr));
  MUST(cuMemAlloc(&plain, 256 * kMiB));
  MUST(cuStreamSynchronize(nullptr));
  fact(mib(before, free_memory()), "reset.taken_mib");
  cudaDeviceReset();
  cudaFree(nullptr);
  fact(mib(before, free_memory()), "reset.missing_mib_after");
}

void steps(CUcontext) {
  steps_of_plain_memory();
  steps_of_stream_ordered_memory();
}

constexpr Group kGroups[] = {{"steps", steps},
                             {"async", free_async},
                             {"pinned", pinned_memory},
                             {"captures", captures},
                             {"events", events},
                             {"virtual", virtual_memory},
                             {"reset", reset_with_stream_ordered_memory}};

}  // namespace

int main(int argc, char** argv) { return run(kGroups, argc, argv); }
