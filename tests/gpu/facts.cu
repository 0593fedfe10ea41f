// SPDX-License-Identifier: Apache-2.0
//
// What this driver does where its documentation says nothing and the simulated CUDA had to choose:
// when memory comes back, in which steps it is taken, what waits for work under way, and what the
// calls that a pool saves would have cost. Prints one JSON object; tests/gpu/check.py runs it
// without Cistern.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMiB = size_t{1} << 20;

void must(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "facts: %s: %d\n", what, static_cast<int>(code));
  std::exit(1);
}
#define MUST(call) must(call, #call)

double microseconds(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double each(int count, const std::function<void()>& run) {
  run();
  return microseconds([&] {
           for (int i = 0; i < count; ++i) run();
         }) /
         count;
}

__global__ void hold(const volatile unsigned* go) {
  while (*go == 0) {
  }
}

__global__ void add_one(float* values, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    values[i] += 1;
  }
}

size_t free_memory() {
  size_t bytes = 0;
  MUST(cuMemGetInfo(&bytes, nullptr));
  return bytes;
}

// Work that ends when the host says so.
class Held {
 public:
  Held() {
    MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    void* word = nullptr;
    MUST(cuMemHostAlloc(&word, sizeof(unsigned), 0));
    go_ = static_cast<unsigned*>(word);
    *go_ = 0;
    hold<<<1, 1, 0, stream_>>>(go_);
  }
  ~Held() {
    end();
    MUST(cuMemFreeHost(const_cast<unsigned*>(go_)));
    MUST(cuStreamDestroy(stream_));
  }
  void end() {
    *go_ = 1;
    MUST(cuStreamSynchronize(stream_));
  }

 private:
  CUstream stream_ = nullptr;
  volatile unsigned* go_ = nullptr;
};

const char* separator = "{\n";

void fact(const char* name, double value) {
  std::printf("%s \"%s\": %.9g", separator, name, value);
  std::fflush(stdout);
  separator = ",\n";
}

double mib(size_t before, size_t after) {
  return (static_cast<double>(before) - static_cast<double>(after)) / static_cast<double>(kMiB);
}

// cuMemFreeAsync of memory of cuMemAlloc beside work that goes on: is it there at once?
void free_async_of_plain_memory() {
  CUdeviceptr block = 0;
  const size_t before = free_memory();
  MUST(cuMemAlloc(&block, 1024 * kMiB));
  MUST(cuCtxSynchronize());
  Held held;
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  fact("plain_free_async.code", cuMemFreeAsync(block, stream));
  MUST(cuStreamSynchronize(stream));
  fact("plain_free_async.missing_mib_beside_work", mib(before, free_memory()));
  CUdeviceptr again = 0;
  const size_t most = free_memory() / kMiB * kMiB;
  size_t got = most;
  while (got > 0 && cuMemAlloc(&again, got) != CUDA_SUCCESS)
    got -= got > 64 * kMiB ? 64 * kMiB : got;
  fact("plain_free_async.told_but_refused_mib", mib(most, got));
  held.end();
  if (again != 0) MUST(cuMemFree(again));
  MUST(cuCtxSynchronize());
  fact("plain_free_async.missing_mib_after_work", mib(before, free_memory()));
  MUST(cuStreamDestroy(stream));
}

// Which calls wait for work that was submitted before them. Milliseconds of 50 that are left.
void what_waits() {
  struct Case {
    const char* name;
    std::function<void()> prepare, run;
  };
  CUcontext own = nullptr, second = nullptr;
  MUST(cuCtxGetCurrent(&own));
  MUST(cuCtxCreate(&second, nullptr, 0, 0));
  MUST(cuCtxSetCurrent(own));
  CUdeviceptr block = 0, other = 0;
  void *pinned = nullptr, *kept = nullptr;
  CUevent event = nullptr;
  const Case cases[] = {
      {"waits_ms.cuMemAlloc", [] {}, [&] { MUST(cuMemAlloc(&other, 64 * kMiB)); }},
      {"waits_ms.cuMemFree", [&] { MUST(cuMemAlloc(&block, 64 * kMiB)); },
       [&] { MUST(cuMemFree(block)); }},
      {"waits_ms.cuMemFree_4KiB", [&] { MUST(cuMemAlloc(&block, 4096)); },
       [&] { MUST(cuMemFree(block)); }},
      {"waits_ms.cuMemHostAlloc", [] {}, [&] { MUST(cuMemHostAlloc(&kept, 4 * kMiB, 0)); }},
      {"waits_ms.cuMemFreeHost", [&] { MUST(cuMemHostAlloc(&pinned, 4 * kMiB, 0)); },
       [&] { MUST(cuMemFreeHost(pinned)); }},
      // The work is not of the context that the memory was allocated in, and may reach it all the
      // same; and so for device memory, which it may not.
      {"waits_ms.cuMemFreeHost_of_other_context",
       [&] {
         MUST(cuCtxSetCurrent(second));
         MUST(cuMemHostAlloc(&pinned, 4 * kMiB, CU_MEMHOSTALLOC_PORTABLE));
         MUST(cuCtxSetCurrent(own));
       },
       [&] {
         MUST(cuCtxSetCurrent(second));
         MUST(cuMemFreeHost(pinned));
         MUST(cuCtxSetCurrent(own));
       }},
      {"waits_ms.cuMemFree_of_other_context",
       [&] {
         MUST(cuCtxSetCurrent(second));
         MUST(cuMemAlloc(&block, 64 * kMiB));
         MUST(cuCtxSetCurrent(own));
       },
       [&] {
         MUST(cuCtxSetCurrent(second));
         MUST(cuMemFree(block));
         MUST(cuCtxSetCurrent(own));
       }},
      {"waits_ms.cuEventDestroy", [&] { MUST(cuEventCreate(&event, 0)); },
       [&] { MUST(cuEventDestroy(event)); }},
  };
  for (const Case& one : cases) {
    one.prepare();
    MUST(cuCtxSynchronize());
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    unsigned* go = nullptr;
    MUST(cuMemHostAlloc(reinterpret_cast<void**>(&go), sizeof(unsigned), 0));
    *go = 0;
    hold<<<1, 1, 0, stream>>>(go);
    // A host function on another stream ends the kernel after 50 ms.
    CUstream timer = nullptr;
    MUST(cuStreamCreate(&timer, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchHostFunc(
        timer,
        [](void* flag) {
          const auto until = Clock::now() + std::chrono::milliseconds(50);
          while (Clock::now() < until) {
          }
          *static_cast<volatile unsigned*>(flag) = 1;
        },
        go));
    fact(one.name, microseconds(one.run) / 1000);
    MUST(cuCtxSynchronize());
    MUST(cuMemFreeHost(go));
    MUST(cuStreamDestroy(stream));
    MUST(cuStreamDestroy(timer));
  }
  MUST(cuMemFree(other));
  MUST(cuMemFreeHost(kept));
  MUST(cuCtxDestroy(second));
  MUST(cuCtxSetCurrent(own));
}

// How much of the device single blocks cost, and how many share a page.
void steps_of_plain_memory() {
  for (const size_t bytes : {size_t{1}, size_t{65536}, kMiB - 1, kMiB, kMiB + 1, 2 * kMiB, 3 * kMiB,
                             5 * kMiB, 33 * kMiB}) {
    std::vector<CUdeviceptr> blocks(64);
    const size_t before = free_memory();
    for (CUdeviceptr& block : blocks) MUST(cuMemAlloc(&block, bytes));
    char name[64];
    std::snprintf(name, sizeof name, "plain_memory.mib_a_block.%zu", bytes);
    fact(name, mib(before, free_memory()) / 64);
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
    char name[64];
    std::snprintf(name, sizeof name, "pool_memory.mib_of_first.%zu", bytes);
    fact(name, mib(before, free_memory()));
    MUST(cuMemFreeAsync(block, nullptr));
    MUST(cuStreamSynchronize(nullptr));
    std::snprintf(name, sizeof name, "pool_memory.mib_kept_after.%zu", bytes);
    fact(name, mib(before, free_memory()));
  }
}

// Pinned memory: sizes, codes and prices.
void pinned_memory() {
  void* block = nullptr;
  for (const size_t bytes : {size_t{512}, size_t{65536}, kMiB, 16 * kMiB, 256 * kMiB}) {
    char name[64];
    std::snprintf(name, sizeof name, "pinned.alloc_us.%zu", bytes);
    fact(name, microseconds([&] { MUST(cuMemHostAlloc(&block, bytes, 0)); }));
    std::snprintf(name, sizeof name, "pinned.free_us.%zu", bytes);
    fact(name, microseconds([&] { MUST(cuMemFreeHost(block)); }));
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
  fact("pinned.aligned_to", alignment(block));
  fact("pinned.next_aligned_to", alignment(next));
  fact("pinned.next_is_behind_by", static_cast<double>(reinterpret_cast<intptr_t>(next)) -
                                       static_cast<double>(reinterpret_cast<intptr_t>(block)));
  MUST(cuMemFreeHost(next));
  fact("pinned.free_inside.code", cuMemFreeHost(inside));
  fact("pinned.flags_inside.code", cuMemHostGetFlags(&flags, inside));
  fact("pinned.flags", flags);
  CUdeviceptr address = 0;
  fact("pinned.device_pointer_inside.code", cuMemHostGetDevicePointer(&address, inside, 0));
  fact("pinned.same_address", address == reinterpret_cast<CUdeviceptr>(inside));
  fact("pinned.register_inside.code", cuMemHostRegister(inside, 4096, 0));
  fact("pinned.unregister.code", cuMemHostUnregister(block));
  CUdeviceptr base = 0;
  size_t size = 0;
  fact("pinned.address_range.code",
       cuMemGetAddressRange(&base, &size, reinterpret_cast<CUdeviceptr>(inside)));
  fact("pinned.address_range.size", static_cast<double>(size));
  fact("pinned.zeroed", [&] {
    for (int i = 0; i < 8192; ++i) {
      if (static_cast<char*>(block)[i] != 0) return 0;
    }
    return 1;
  }());
  MUST(cuMemFreeHost(block));
  fact("pinned.free_again.code", cuMemFreeHost(block));
  fact("pinned.free_null.code", cuMemFreeHost(nullptr));
  fact("pinned.nothing.code", cuMemHostAlloc(&block, 0, 0));
  fact("pinned.nothing.address", static_cast<double>(reinterpret_cast<size_t>(block)));
  fact("pinned.nothing_v2.code", cuMemAllocHost(&block, 0));
  fact("pinned.unknown_flag.code", cuMemHostAlloc(&block, 4096, 0x40));
  fact("pinned.no_place.code", cuMemHostAlloc(nullptr, 4096, 0));
  fact("pinned.too_large.code", cuMemHostAlloc(&block, size_t{1} << 46, 0));
  fact("pinned.free_of_malloc.code", cuMemFreeHost(&separator));
  fact("pinned.free_of_device.code", [] {
    CUdeviceptr device = 0;
    MUST(cuMemAlloc(&device, 4096));
    const CUresult code = cuMemFreeHost(reinterpret_cast<void*>(device));
    if (code != CUDA_SUCCESS) MUST(cuMemFree(device));
    return code;
  }());
  fact("pinned.free_as_device.code", [&] {
    MUST(cuMemHostAlloc(&block, 4096, 0));
    const CUresult code = cuMemFree(reinterpret_cast<CUdeviceptr>(block));
    if (code != CUDA_SUCCESS) MUST(cuMemFreeHost(block));
    return code;
  }());
}

// Whether a capture forbids what a pool would do beside it.
void captures() {
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
          [&] { fact("capture.global.cuMemHostAlloc.code", cuMemHostAlloc(&during, 4096, 0)); });
  capture(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] {
    freed = cuMemFreeHost(before);
    fact("capture.global.cuMemFreeHost.code", freed);
  });
  if (freed == CUDA_SUCCESS) MUST(cuMemHostAlloc(&before, 4096, 0));
  capture(CU_STREAM_CAPTURE_MODE_RELAXED, [&] {
    fact("capture.relaxed.cuMemFreeHost.code", cuMemFreeHost(before));
    fact("capture.relaxed.cuMemHostAlloc.code", cuMemHostAlloc(&during, 4096, 0));
  });
  MUST(cuStreamDestroy(stream));
}

// What a mark costs: an event behind each launch, a look at it.
void events() {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  float* value = nullptr;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  cudaMalloc(&value, sizeof(float));
  const auto launch = [&] { add_one<<<1, 1, 0, stream>>>(value, 1); };
  fact("events.launch_us", each(500, launch));
  MUST(cuCtxSynchronize());
  fact("events.launch_and_record_us", each(500, [&] {
         launch();
         MUST(cuEventRecord(event, stream));
       }));
  MUST(cuCtxSynchronize());
  fact("events.record_us", each(500, [&] { MUST(cuEventRecord(event, stream)); }));
  MUST(cuCtxSynchronize());
  fact("events.query_us", each(500, [&] { (void)cuEventQuery(event); }));
  fact("events.create_destroy_us", each(500, [&] {
         CUevent one = nullptr;
         MUST(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
         MUST(cuEventDestroy(one));
       }));
  fact("events.memory_info_us", each(100, [] { (void)free_memory(); }));
  cudaFree(value);
}

// Prices of virtual memory, and whether kernels run as fast on it.
double gigabytes_a_second(float* values, size_t bytes) {
  const auto pass = [&] { add_one<<<2048, 256>>>(values, bytes / sizeof(float)); };
  pass();
  MUST(cuCtxSynchronize());
  const double us = microseconds([&] {
    for (int i = 0; i < 20; ++i) pass();
    MUST(cuCtxSynchronize());
  });
  return 20.0 * 2 * static_cast<double>(bytes) / us / 1000;
}

void virtual_memory() {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t unit = 0;
  MUST(cuMemGetAllocationGranularity(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  fact("virtual.unit_bytes", static_cast<double>(unit));
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
             fact("virtual.gb_a_second", gigabytes_a_second(reinterpret_cast<float*>(at), bytes));
           }
         }},
        {"unmap", [&] { MUST(cuMemUnmap(at, bytes)); }},
        {"release", [&] { MUST(cuMemRelease(handle)); }},
        {"free", [&] { MUST(cuMemAddressFree(at, bytes)); }}};
    for (const auto& [step, run] : steps) {
      const double us = microseconds(run);
      char name[64];
      std::snprintf(name, sizeof name, "virtual.us.%s.%zu", step, bytes / kMiB);
      if (step[0] != 'p') fact(name, us);
    }
  }
  CUdeviceptr plain = 0;
  MUST(cuMemAlloc(&plain, 512 * kMiB));
  fact("plain.gb_a_second", gigabytes_a_second(reinterpret_cast<float*>(plain), 512 * kMiB));
  MUST(cuMemFree(plain));
}

// Whether stream-ordered memory outlives the end of its context.
void reset_with_stream_ordered_memory() {
  MUST(cuCtxSynchronize());
  const size_t before = free_memory();
  CUdeviceptr block = 0, plain = 0;
  MUST(cuMemAllocAsync(&block, 512 * kMiB, nullptr));
  MUST(cuMemAlloc(&plain, 256 * kMiB));
  MUST(cuStreamSynchronize(nullptr));
  fact("reset.taken_mib", mib(before, free_memory()));
  cudaDeviceReset();
  cudaFree(nullptr);
  fact("reset.missing_mib_after", mib(before, free_memory()));
}

}  // namespace

int main() {
  if (cudaFree(nullptr) != cudaSuccess) return 1;
  add_one<<<1, 1>>>(nullptr, 0);
  {
    Held first;  // loads the kernel
  }
  int version = 0;
  MUST(cuDriverGetVersion(&version));
  fact("driver", version);
  steps_of_plain_memory();
  free_async_of_plain_memory();
  what_waits();
  pinned_memory();
  captures();
  events();
  virtual_memory();
  steps_of_stream_ordered_memory();
  reset_with_stream_ordered_memory();
  std::printf("\n}\n");
  return 0;
}
