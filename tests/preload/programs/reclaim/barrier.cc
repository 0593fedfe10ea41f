// SPDX-License-Identifier: Apache-2.0
// A free waits for the work of its context, and programs lean on it, each in its own way.
// What such a program looks at behind a free is there, as with the driver alone. The freed block
// has nothing to do with it.
//
//   barrier ROUNDS [MODE...]
//
//   threads N   N threads, each with a stream and blocks of its own
//   abroad      the block's context is not the current one
//   capture     another stream captures, in relaxed mode
//   peers       the context has access to memory of device 1, and the other way round
//   full        the device has no memory left
//   quiet       frees behind which nothing was submitted

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr size_t kWords = 64, kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kDelayUs = 2000;

void* new_pinned(size_t bytes) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  return memory;
}

CUdeviceptr new_block(size_t bytes) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  return block;
}

CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

// What a program works with, in one context.
struct Workplace {
  explicit Workplace(CUcontext context) : worker(context), other(timed::new_stream()) {
    host = static_cast<volatile uint32_t*>(new_pinned(kBytes));
    source = static_cast<volatile uint32_t*>(new_pinned(kBytes));
    MUST(cuMemHostGetDevicePointer(&mapped, const_cast<uint32_t*>(host), 0));
    MUST(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL));
  }
  void fill(CUdeviceptr words, uint32_t first) const {
    MUST(timed::fill_words(worker.kernels, worker.stream, words, kWords, first, kDelayUs));
  }
  static bool holds(const volatile uint32_t* words, uint32_t first) {
    for (uint32_t i = 0; i < kWords; ++i) {
      if (words[i] != first + i) return false;
    }
    return true;
  }

  timed::Worker worker;
  CUstream other;
  CUdeviceptr device = new_block(kBytes), copy = new_block(kBytes), mapped = 0, managed = 0;
  volatile uint32_t *host = nullptr, *source = nullptr;
  CUevent begin = new_event(), end = new_event();
  uint32_t seed = 0, from_host = 0;
};

// A way of leaning on a free: what is submitted before it, and whether it is there behind it.
struct Way {
  const char* name;
  void (*submit)(Workplace& at);
  bool (*there)(Workplace& at);
};

void copy_to_host(Workplace& at) {
  at.fill(at.device, at.seed);
  MUST(cuMemcpyDtoHAsync(const_cast<uint32_t*>(at.host), at.device, kBytes, at.worker.stream));
}

void CUDA_CB write_from_host(void* data) {
  auto* at = static_cast<Workplace*>(data);
  __atomic_store_n(&at->from_host, at->seed, __ATOMIC_RELEASE);
}

void copy_from_host(Workplace& at) {
  for (uint32_t i = 0; i < kWords; ++i) at.source[i] = at.seed + i;
  at.fill(at.device, 0);
  MUST(cuMemcpyHtoDAsync(at.device, const_cast<uint32_t*>(at.source), kBytes, at.worker.stream));
}

bool source_was_read(Workplace& at) {
  for (uint32_t i = 0; i < kWords; ++i) at.source[i] = 0;
  MUST(cuStreamSynchronize(at.worker.stream));
  MUST(cuMemcpyDtoH(const_cast<uint32_t*>(at.host), at.device, kBytes));
  return at.holds(at.host, at.seed);
}

bool other_stream_has_it(Workplace& at) {
  MUST(cuMemcpyDtoDAsync(at.copy, at.device, kBytes, at.other));
  MUST(cuMemcpyDtoHAsync(const_cast<uint32_t*>(at.host), at.copy, kBytes, at.other));
  MUST(cuStreamSynchronize(at.other));
  return at.holds(at.host, at.seed);
}

void record(Workplace& at) {
  MUST(cuEventRecord(at.begin, at.worker.stream));
  at.fill(at.device, at.seed);
  MUST(cuEventRecord(at.end, at.worker.stream));
}

bool events_can_be_timed(Workplace& at) {
  float ms = 0;
  return cuEventElapsedTime(&ms, at.begin, at.end) == CUDA_SUCCESS;
}

constexpr Way kWays[] = {
    {"reads what a copy wrote", copy_to_host,
     [](Workplace& at) { return at.holds(at.host, at.seed); }},
    {"reads what a kernel wrote to mapped memory",
     [](Workplace& at) { at.fill(at.mapped, at.seed); },
     [](Workplace& at) { return at.holds(at.host, at.seed); }},
    {"reads what a kernel wrote to managed memory",
     [](Workplace& at) { at.fill(at.managed, at.seed); },
     [](Workplace& at) {
       return at.holds(reinterpret_cast<volatile uint32_t*>(at.managed), at.seed);
     }},
    {"reads what a host function wrote",
     [](Workplace& at) {
       at.fill(at.device, at.seed);
       MUST(cuLaunchHostFunc(at.worker.stream, write_from_host, &at));
     },
     [](Workplace& at) { return __atomic_load_n(&at.from_host, __ATOMIC_ACQUIRE) == at.seed; }},
    {"overwrites what a copy reads", copy_from_host, source_was_read},
    {"uses it on another stream", [](Workplace& at) { at.fill(at.device, at.seed); },
     other_stream_has_it},
    {"asks an event", record, [](Workplace& at) { return cuEventQuery(at.end) == CUDA_SUCCESS; }},
    {"asks an event behind nothing else",
     [](Workplace& at) { MUST(cuEventRecord(at.end, at.worker.stream)); },
     [](Workplace& at) { return cuEventQuery(at.end) == CUDA_SUCCESS; }},
    {"times events", record, events_can_be_timed},
    {"asks a stream", [](Workplace& at) { at.fill(at.device, at.seed); },
     [](Workplace& at) { return cuStreamQuery(at.worker.stream) == CUDA_SUCCESS; }},
};
constexpr size_t kWaysThere = sizeof kWays / sizeof *kWays;

// What is freed: two sizes of device memory, and pinned memory.
constexpr size_t kKinds = 3;

void* new_freed(size_t kind) {
  if (kind == 2) return new_pinned(8192);
  return reinterpret_cast<void*>(new_block(kind == 0 ? 1000 : 4 * kMiB));
}

CUresult free_it(size_t kind, void* block) {
  return kind == 2 ? cuMemFreeHost(block) : cuMemFree(reinterpret_cast<CUdeviceptr>(block));
}

using Counts = std::array<size_t, kWaysThere>;

// `abroad`: current during the free, if not nullptr.
void lean(CUcontext context, int rounds, CUcontext abroad, Counts& right) {
  MUST(cuCtxSetCurrent(context));
  Workplace at(context);
  void* freed[kKinds];
  for (int round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (size_t way = 0; way < kWaysThere; ++way) {
        freed[kind] = new_freed(kind);
        ++at.seed;
        kWays[way].submit(at);
        if (abroad != nullptr) MUST(cuCtxSetCurrent(abroad));
        MUST(free_it(kind, freed[kind]));
        if (abroad != nullptr) MUST(cuCtxSetCurrent(context));
        right[way] += kWays[way].there(at);
      }
    }
  }
  MUST(cuStreamSynchronize(at.worker.stream));
}

void say_counts(const Counts& right, size_t all) {
  for (size_t way = 0; way < kWaysThere; ++way) {
    std::printf("%s: %s\n", kWays[way].name, right[way] == all ? "there" : "not there");
  }
}

void with_threads(CUcontext context, int rounds, int threads) {
  std::vector<std::thread> running;
  std::vector<Counts> right(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] { lean(context, rounds, nullptr, right[static_cast<size_t>(i)]); });
  }
  for (std::thread& thread : running) thread.join();
  Counts sum = {};
  for (const Counts& each : right) {
    for (size_t way = 0; way < kWaysThere; ++way) sum[way] += each[way];
  }
  say_counts(sum, static_cast<size_t>(threads) * static_cast<size_t>(rounds) * kKinds);
}

// A stream that captures while others work. The thread may make calls that a capture else forbids.
void begin_capture() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  MUST(cuStreamBeginCapture(timed::new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
}

void enable_peers(CUcontext context) {
  CUcontext other = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&other, 1));
  MUST(cuCtxEnablePeerAccess(other, 0));
  MUST(cuCtxSetCurrent(other));
  MUST(cuCtxEnablePeerAccess(context, 0));
  MUST(cuCtxSetCurrent(context));
}

// Takes all memory of the device, and frees 24 MiB for the requests that follow.
void fill_device() {
  const CUdeviceptr spare = new_block(24 * kMiB);
  CUdeviceptr block = 0;
  for (size_t bytes = 256 * kMiB; bytes >= 4096; bytes /= 2) {
    while (cuMemAlloc(&block, bytes) == CUDA_SUCCESS) {
    }
  }
  MUST(cuMemFree(spare));
}

void free_quietly(int rounds) {
  MUST(cuCtxSynchronize());
  for (int round = 0; round < rounds; ++round) {
    for (size_t kind = 0; kind < kKinds; ++kind) MUST(free_it(kind, new_freed(kind)));
  }
  std::printf("freed\n");
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  CUcontext context = use_device(0), abroad = nullptr;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  for (int i = 2; i < argc; ++i) {
    const auto is = [&](const char* mode) { return std::strcmp(argv[i], mode) == 0; };
    if (is("quiet")) return free_quietly(rounds), 0;
    if (is("threads")) return with_threads(context, rounds, std::atoi(argv[i + 1])), 0;
    if (is("abroad")) MUST(cuCtxCreate(&abroad, nullptr, 0, 0));
    if (is("capture")) begin_capture();
    if (is("peers")) enable_peers(context);
    if (is("full")) fill_device();
  }
  Counts right = {};
  lean(context, rounds, abroad, right);
  say_counts(right, static_cast<size_t>(rounds) * kKinds);
  return 0;
}
