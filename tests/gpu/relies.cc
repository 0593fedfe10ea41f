// SPDX-License-Identifier: Apache-2.0
// Programs that rely on a free to wait, as a driver's own does: each hands over work that ends with
// what its name says, frees memory that has nothing to do with it, and looks at once.
//
//   gpu_relies          names them
//   gpu_relies PROGRAM  prints in how many of its rounds what it looked at was there
//
// check.py runs each without and with Cistern, whose output must be the same, and with
// CISTERN_FREE_SYNC=false, which promises less: rounds that fail there show that there was
// something to wait for. The work takes kWorkUs on the device, so that a free that does not wait is
// noticed.

#include <cstring>
#include <thread>

#include "../preload/programs/driver_codes.h"
#include "../preload/programs/reclaim/debts_workplace.h"
#include "limit.h"

namespace {

constexpr int kRounds = 4;
constexpr uint32_t kWorkUs = 10'000;

uint32_t read(const void* memory) { return static_cast<const volatile uint32_t*>(memory)[0]; }

// What stands between the work and the look.
void free_a_block() { MUST(cuMemFree(new_block(1000))); }

struct Round {
  const Workplace& at;
  CUcontext context;
  uint32_t seed;  // the first word that the work writes

  void write_slowly(CUstream stream, CUdeviceptr words) const {
    MUST(timed::fill_words(at.kernels, stream, words, kWords, seed, kWorkUs));
  }
  // Work of the same stream comes behind.
  void begin() const { write_slowly(at.first, at.words); }
};

CUdeviceptr on_device(void* memory) {
  CUdeviceptr address = 0;
  MUST(cuMemHostGetDevicePointer(&address, memory, 0));
  return address;
}

bool copy_to_pinned(const Round& round) {
  uint32_t* memory = new_pinned();
  const CUdeviceptr block = new_block(4 * kMiB);
  *memory = 0;
  round.begin();
  MUST(cuMemcpyDtoHAsync(memory, round.at.words, kBytes, round.at.first));
  MUST(cuMemFree(block));
  return read(memory) == round.seed;
}

bool copy_from_pinned(const Round& round) {
  uint32_t* memory = new_pinned();
  for (uint32_t i = 0; i < kWords; ++i) memory[i] = round.seed + i;
  const CUdeviceptr block = new_block(1000);
  round.begin();
  MUST(cuMemcpyHtoDAsync(round.at.copy, memory, kBytes, round.at.first));
  MUST(cuMemFree(block));
  std::memset(memory, 0, kBytes);
  return Workplace::holds(round.at.copy, round.seed);
}

bool kernel_on_mapped(const Round& round) {
  uint32_t* memory = new_pinned();
  *memory = 0;
  round.write_slowly(round.at.first, on_device(memory));
  free_a_block();
  return read(memory) == round.seed;
}

bool kernel_on_registered(const Round& round) {
  alignas(4096) static uint32_t memory[4096 / sizeof(uint32_t)];
  MUST(cuMemHostRegister(memory, sizeof memory, CU_MEMHOSTREGISTER_DEVICEMAP));
  memory[0] = 0;
  round.write_slowly(round.at.first, on_device(memory));
  free_a_block();
  const bool there = read(memory) == round.seed;
  MUST(cuMemHostUnregister(memory));
  return there;
}

bool kernel_on_managed(const Round& round) {
  CUdeviceptr words = 0;
  MUST(cuMemAllocManaged(&words, kBytes, CU_MEM_ATTACH_GLOBAL));
  round.write_slowly(round.at.first, words);
  free_a_block();
  // Elsewhere the processor may not touch it beside the device's work: a look would end the
  // program.
  int concurrent = 0;
  MUST(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
  if (concurrent == 0 && cuStreamQuery(round.at.first) != CUDA_SUCCESS) return false;
  const bool there = read(reinterpret_cast<const void*>(words)) == round.seed;
  MUST(cuMemFree(words));
  return there;
}

void CUDA_CB write_from_host(void* data) {
  __atomic_store_n(static_cast<uint32_t*>(data), 1, __ATOMIC_RELEASE);
}

bool host_function(const Round& round) {
  static uint32_t written;
  written = 0;
  round.begin();
  MUST(cuLaunchHostFunc(round.at.first, write_from_host, &written));
  free_a_block();
  return __atomic_load_n(&written, __ATOMIC_ACQUIRE) == 1;
}

bool memory_operation(const Round& round) {
  uint32_t* memory = new_pinned();
  *memory = 0;
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = on_device(memory);
  operation.writeValue.value = round.seed;
  round.begin();
  MUST(cuStreamBatchMemOp(round.at.first, 1, &operation, 0));
  free_a_block();
  return read(memory) == round.seed;
}

bool graph(const Round& round) {
  uint32_t* memory = new_pinned();
  *memory = 0;
  CUgraph made = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(round.at.first, CU_STREAM_CAPTURE_MODE_GLOBAL));
  round.begin();
  MUST(cuMemcpyDtoHAsync(memory, round.at.words, kBytes, round.at.first));
  MUST(cuStreamEndCapture(round.at.first, &made));
  MUST(cuGraphInstantiate(&exec, made, 0));
  const CUdeviceptr block = new_block(1000);
  MUST(cuGraphLaunch(exec, round.at.first));
  MUST(cuMemFree(block));
  return read(memory) == round.seed;
}

bool event(const Round& round) {
  const CUevent done = new_event();
  round.begin();
  MUST(cuEventRecord(done, round.at.first));
  free_a_block();
  return cuEventQuery(done) == CUDA_SUCCESS && cuStreamQuery(round.at.first) == CUDA_SUCCESS;
}

bool other_stream(const Round& round) {
  round.begin();
  free_a_block();
  MUST(cuMemcpyDtoDAsync(round.at.copy, round.at.words, kBytes, round.at.second));
  return Workplace::holds(round.at.copy, round.seed);
}

bool other_thread(const Round& round) {
  bool there = false;
  round.begin();
  free_a_block();
  std::thread([&] {
    MUST(cuCtxSetCurrent(round.context));
    there = other_stream(Round{round.at, round.context, round.seed});
  }).join();
  return there;
}

bool memory_again(const Round& round) {
  CUdeviceptr block = new_block(4 * kMiB);
  round.write_slowly(round.at.first, block);
  MUST(cuMemFree(block));
  block = new_block(4 * kMiB);
  MUST(timed::fill_words(round.at.kernels, round.at.second, block, kWords, round.seed + 1, 0));
  const bool there = Workplace::holds(block, round.seed + 1);
  MUST(cuMemFree(block));
  return there;
}

bool pinned_free(const Round& round) {
  uint32_t *memory = new_pinned(), *freed = new_pinned();
  *memory = 0;
  round.begin();
  MUST(cuMemcpyDtoHAsync(memory, round.at.words, kBytes, round.at.first));
  MUST(cuMemFreeHost(freed));
  return read(memory) == round.seed;
}

bool abroad(const Round& round) {
  uint32_t* memory = new_pinned();
  const CUdeviceptr block = new_block(1000);
  CUcontext other = nullptr;
  *memory = 0;
  MUST(cuCtxCreate(&other, nullptr, 0, 0));
  MUST(cuCtxSetCurrent(round.context));
  round.begin();
  MUST(cuMemcpyDtoHAsync(memory, round.at.words, kBytes, round.at.first));
  MUST(cuCtxSetCurrent(other));
  MUST(cuMemFree(block));
  const bool there = read(memory) == round.seed;
  MUST(cuCtxDestroy(other));
  MUST(cuCtxSetCurrent(round.context));
  return there;
}

// The device writes memory of malloc, where it reaches that.
bool kernel_on_pageable(const Round& round) {
  static uint32_t memory[kWords];
  int reaches = 0;
  MUST(cuDeviceGetAttribute(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
  if (reaches == 0) return true;
  memory[0] = 0;
  round.write_slowly(round.at.first, reinterpret_cast<CUdeviceptr>(memory));
  free_a_block();
  return read(memory) == round.seed;
}

struct Program {
  const char* name;
  bool (*looks)(const Round&);
};
constexpr Program kPrograms[] = {{"copy_to_pinned", copy_to_pinned},
                                 {"copy_from_pinned", copy_from_pinned},
                                 {"kernel_on_mapped", kernel_on_mapped},
                                 {"kernel_on_registered", kernel_on_registered},
                                 {"kernel_on_managed", kernel_on_managed},
                                 {"kernel_on_pageable", kernel_on_pageable},
                                 {"host_function", host_function},
                                 {"memory_operation", memory_operation},
                                 {"graph", graph},
                                 {"event", event},
                                 {"other_stream", other_stream},
                                 {"other_thread", other_thread},
                                 {"memory_again", memory_again},
                                 {"pinned_free", pinned_free},
                                 {"abroad", abroad}};

void run(const Program& program) {
  const CUcontext context = use_device(0);
  const Workplace at;
  MUST(cuCtxSynchronize());
  int there = 0;
  for (uint32_t i = 0; i < kRounds; ++i) {
    there += program.looks({at, context, /*seed=*/1000 * (i + 1)});
    MUST(cuCtxSynchronize());
  }
  std::printf("%s: there in %d of %d rounds\n", program.name, there, kRounds);
}

}  // namespace

int main(int argc, char** argv) {
  end_in_time();
  for (const Program& program : kPrograms) {
    if (argc < 2) std::printf("%s\n", program.name);
    if (argc > 1 && std::strcmp(argv[1], program.name) == 0) return run(program), 0;
  }
  return argc < 2 ? 0 : 2;
}
