// SPDX-License-Identifier: Apache-2.0
//
// Programs with one bug each. The watcher must find it under every schedule, because it is a bug
// of order, not of what happened to run when.
#include <functional>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kWords = 256;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr size_t kUnit = size_t{2} << 20;

// The bytes a pool has, of which it hands out the first block again and again.
CUdeviceptr pool_of(CUdeviceptr* second_block) {
  const CUdeviceptr slab = new_block(kUnit);
  if (second_block != nullptr) *second_block = slab + kBytes;
  return slab;
}

void reuse_without_order() {
  const CUdeviceptr block = pool_of(nullptr);
  fill_words(new_stream(), block, kWords, 1);
  fill_words(new_stream(), block, kWords, 2);
}

void reuse_ordered_too_early() {
  const CUdeviceptr block = pool_of(nullptr);
  CUstream one = new_stream();
  CUstream two = new_stream();
  fill_words(one, block, kWords, 1);
  after(two, one);
  fill_words(one, block, kWords, 2);  // the last use, after the event
  fill_words(two, block, kWords, 3);
}

void reuse_while_being_read() {
  const CUdeviceptr block = pool_of(nullptr);
  CUstream reader = new_stream();
  const CUdeviceptr total = new_total(reader);
  sum_words(reader, block, kWords, total);
  EXPECT_OK(cuMemsetD8Async(block, 0, kBytes, new_stream()));
}

void legacy_stream_taken_for_a_barrier() {
  const CUdeviceptr block = pool_of(nullptr);
  fill_words(new_stream(CU_STREAM_NON_BLOCKING), block, kWords, 1);
  EXPECT_OK(cuStreamSynchronize(CU_STREAM_LEGACY));  // says nothing about non-blocking streams
  fill_words(new_stream(CU_STREAM_NON_BLOCKING), block, kWords, 2);
}

void legacy_event_taken_for_the_end_of_a_destroyed_stream() {
  const CUdeviceptr block = pool_of(nullptr);
  CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
  fill_words(gone, block, kWords, 1);
  EXPECT_OK(cuStreamDestroy(gone));
  CUstream later = new_stream(CU_STREAM_NON_BLOCKING);
  after(later, CU_STREAM_LEGACY);
  fill_words(later, block, kWords, 2);
}

void wrong_context_synchronised() {
  const CUdeviceptr block = pool_of(nullptr);
  fill_words(new_stream(), block, kWords, 1);
  CUcontext other = nullptr;
  EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
  EXPECT_OK(cuCtxSynchronize());
  fill_words(new_stream(), block, kWords, 2);
}

void freed_while_another_context_uses_it() {
  const CUdeviceptr block = new_block(kUnit);
  CUcontext first = nullptr;
  CUcontext other = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&first));
  EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
  fill_words(new_stream(), block, kWords, 1);
  EXPECT_OK(cuCtxSetCurrent(first));
  EXPECT_OK(cuMemFree(block));
}

void branches_of_a_graph_meet() {
  const CUdeviceptr block = new_block(kUnit);
  CUstream one = new_stream();
  CUstream two = new_stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  after(two, one);
  fill_words(one, block, kWords, 1);
  fill_words(two, block, kWords, 2);
  after(one, two);
  EXPECT_OK(cuStreamEndCapture(one, &graph));
  EXPECT_OK(cuGraphInstantiate(&exec, graph, 0));
  EXPECT_OK(cuGraphLaunch(exec, one));
}

void early_kernel_taken_for_a_later_one() {
  const CUdeviceptr block = new_block(kUnit);
  CUstream stream = new_stream();
  fill_words(stream, block, kWords, 1);
  fill_words_early(stream, block, kWords, 2);
}

// It comes behind the copy, and not behind the kernel that overlaps it.
void early_kernels_in_a_row() {
  const CUdeviceptr block = new_block(kUnit), other = new_block(kUnit);
  CUstream stream = new_stream();
  EXPECT_OK(cuMemsetD8Async(block, 0, kBytes, stream));
  fill_words(stream, other, kWords, 1);
  fill_words_early(stream, block, kWords, 2);
  fill_words_early(stream, block, kWords, 3);
}

void copies_of_a_batch_meet() {
  const CUdeviceptr block = new_block(kUnit);
  copy_unordered(new_stream(), {{block, block + kBytes}, {block + kBytes, block + 2 * kBytes}},
                 kBytes);
}

void source_is_read_too_early() {
  const CUdeviceptr block = new_block(kUnit);
  CUstream stream = new_stream();
  fill_words(stream, block, kWords, 1);
  copy_unordered(stream, {{block, block + kBytes}}, kBytes, CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
}

void stream_ordered_memory_used_too_early() {
  CUstream one = new_stream();
  CUdeviceptr block = 0;
  EXPECT_OK(cuMemAllocAsync(&block, kBytes, one));
  fill_words(new_stream(), block, kWords, 1);
}

void unmapped_while_in_use() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle unit = 0;
  CUdeviceptr here = 0;
  CUdeviceptr there = 0;
  EXPECT_OK(cuMemAddressReserve(&here, kUnit, 0, 0, 0));
  EXPECT_OK(cuMemAddressReserve(&there, kUnit, 0, 0, 0));
  EXPECT_OK(cuMemCreate(&unit, kUnit, &properties, 0));
  EXPECT_OK(cuMemMap(here, kUnit, 0, unit, 0));
  EXPECT_OK(cuMemMap(there, kUnit, 0, unit, 0));
  EXPECT_OK(cuMemSetAccess(here, kUnit, &access, 1));
  EXPECT_OK(cuMemSetAccess(there, kUnit, &access, 1));
  fill_words(new_stream(), here, kWords, 1);
  fill_words(new_stream(), there, kWords, 2);  // the same bytes under another address
}

void use_after_free() {
  const CUdeviceptr block = new_block(kUnit);
  EXPECT_OK(cuMemFree(block));
  fill_words(new_stream(), block, kWords, 1);
}

void use_after_ordered_free() {
  CUstream stream = new_stream();
  CUdeviceptr block = 0;
  EXPECT_OK(cuMemAllocAsync(&block, kBytes, stream));
  EXPECT_OK(cuMemFreeAsync(block, stream));
  fill_words(stream, block, kWords, 1);
}

void use_after_block_was_taken_back() {
  const CUdeviceptr block = pool_of(nullptr);
  CUstream stream = new_stream();
  simcuda_block_begin(block, kBytes);
  fill_words(stream, block, kWords, 1);
  simcuda_block_end(block);
  fill_words(stream, block, kWords, 2);
}

void read_of_another_block() {
  CUdeviceptr second = 0;
  const CUdeviceptr first = pool_of(&second);
  CUstream stream = new_stream();
  simcuda_block_begin(first, kBytes);
  simcuda_block_begin(second, kBytes);
  sum_words(stream, first, kWords + 1, new_total(stream));
}

void past_the_end_of_an_allocation() { fill_words(new_stream(), new_block(kBytes), kWords + 1, 1); }

void never_allocated() { fill_words(new_stream(), 0x1000, kWords, 1); }

void kernel_on_another_devices_memory() {
  const CUdeviceptr block = new_block(kUnit);
  start(1);
  fill_words(new_stream(), block, kWords, 1);
}

void double_free() {
  const CUdeviceptr block = new_block(kUnit);
  EXPECT_OK(cuMemFree(block));
  EXPECT_CODE(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
}

void free_of_foreign_pointer() {
  int local = 0;
  EXPECT_CODE(cuMemFree(reinterpret_cast<CUdeviceptr>(&local)), CUDA_ERROR_INVALID_VALUE);
}

void free_inside_a_block() {
  EXPECT_CODE(cuMemFree(new_block(kUnit) + 512), CUDA_ERROR_INVALID_VALUE);
}

void block_taken_back_twice() {
  const CUdeviceptr block = pool_of(nullptr);
  simcuda_block_begin(block, kBytes);
  simcuda_block_end(block);
  simcuda_block_end(block);
}

struct Planted {
  const char* name;
  void (*program)();
  SimcudaFinding finding;
};

constexpr Planted kPlanted[] = {
    {"race on reuse", reuse_without_order, SIMCUDA_RACE},
    {"reuse ordered after the wrong point", reuse_ordered_too_early, SIMCUDA_RACE},
    {"reuse while being read", reuse_while_being_read, SIMCUDA_RACE},
    {"legacy stream taken for a barrier", legacy_stream_taken_for_a_barrier, SIMCUDA_RACE},
    {"legacy event taken for the end of a destroyed stream",
     legacy_event_taken_for_the_end_of_a_destroyed_stream, SIMCUDA_RACE},
    {"wrong context synchronised", wrong_context_synchronised, SIMCUDA_RACE},
    {"freed while another context uses it", freed_while_another_context_uses_it, SIMCUDA_RACE},
    {"branches of a graph meet", branches_of_a_graph_meet, SIMCUDA_RACE},
    {"early kernel taken for a later one", early_kernel_taken_for_a_later_one, SIMCUDA_RACE},
    {"early kernels in a row", early_kernels_in_a_row, SIMCUDA_RACE},
    {"copies of a batch meet", copies_of_a_batch_meet, SIMCUDA_RACE},
    {"source is read too early", source_is_read_too_early, SIMCUDA_RACE},
    {"stream-ordered memory used too early", stream_ordered_memory_used_too_early, SIMCUDA_RACE},
    {"one unit at two addresses", unmapped_while_in_use, SIMCUDA_RACE},
    {"use after free", use_after_free, SIMCUDA_INVALID_ACCESS},
    {"use after ordered free", use_after_ordered_free, SIMCUDA_INVALID_ACCESS},
    {"use after the block was taken back", use_after_block_was_taken_back, SIMCUDA_INVALID_ACCESS},
    {"read of another block", read_of_another_block, SIMCUDA_INVALID_ACCESS},
    {"past the end of an allocation", past_the_end_of_an_allocation, SIMCUDA_INVALID_ACCESS},
    {"never allocated", never_allocated, SIMCUDA_INVALID_ACCESS},
    {"no peer access", kernel_on_another_devices_memory, SIMCUDA_INVALID_ACCESS},
    {"double free", double_free, SIMCUDA_INVALID_FREE},
    {"free of a foreign pointer", free_of_foreign_pointer, SIMCUDA_INVALID_FREE},
    {"free inside a block", free_inside_a_block, SIMCUDA_INVALID_FREE},
    {"block taken back twice", block_taken_back_twice, SIMCUDA_INVALID_FREE},
};

constexpr const char* kFirstWords[] = {
    "simcuda: race: ", "simcuda: invalid access: ", "simcuda: invalid free: "};

bool is_found_under(const Planted& planted, const char* schedule) {
  const TemporaryFile findings;
  const bool ran = in_child({{"SIMCUDA_RACES", "report"},
                             {"SIMCUDA_RACES_FILE", findings.path()},
                             {"SIMCUDA_DEVICES", "2"},
                             {"SIMCUDA_SCHEDULE", schedule}},
                            [&] {
                              start();
                              planted.program();
                              EXPECT(simcuda_findings(planted.finding) == 1);
                              EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 1);
                              EXPECT_OK(cuCtxSynchronize());
                            });
  const auto lines = findings.lines();
  return ran && !lines.empty() && lines[0].starts_with(kFirstWords[planted.finding]);
}

}  // namespace

TEST_CASE("each planted bug is found under every schedule") {
  for (const Planted& planted : kPlanted) {
    INFO(planted.name);
#ifndef __SANITIZE_THREAD__  // which finds the same races itself, when they happen
    CHECK(is_found_under(planted, "threads"));
#endif
    for (int seed = 0; seed < 10; ++seed) {
      const std::string schedule = "seed:" + std::to_string(seed);
      INFO(schedule);
      CHECK(is_found_under(planted, schedule.c_str()));
    }
  }
}
