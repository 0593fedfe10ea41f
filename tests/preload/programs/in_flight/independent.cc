// SPDX-License-Identifier: Apache-2.0
// A context that has nothing to do with a block never delays it.
// One context allocates, uses, waits and frees in a loop, while another runs a kernel that does not
// end. What they had to do with each other before is over, or goes the other way. "graph": the
// kernel is before a graph, whose work is in that context alone.
//
//   independent nothing|broadcast|broadcasts|was_peer|other_way|same_device|graph context|stream
//
// The last word says what is waited for before each free.

#include <cstring>

#include "../driver_codes.h"
#include "../driver_memory.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

using timed::Worker;

constexpr int kRounds = 300;
constexpr size_t kBytes = 32 * kMiB;
// One for each free; a driver without events of whole contexts needs one for each of the two
// streams.
constexpr int kMostMarks = 2 * kRounds + 10;

CUdeviceptr new_block(const Worker& worker, size_t bytes) {
  CUdeviceptr block = 0;
  worker.use();
  MUST(cuMemAlloc(&block, bytes));
  MUST(timed::fill_words(worker.kernels, worker.stream, block, 64, 1, 0));
  MUST(cuStreamSynchronize(worker.stream));
  return block;
}

// The weights once, as each training begins; in so many copies.
void broadcast(const Worker& from, const Worker& to, int copies) {
  const CUdeviceptr source = new_block(from, kMiB), target = new_block(to, kMiB);
  for (int i = 0; i < copies; ++i) {
    MUST(cuMemcpyPeerAsync(target, to.context, source, from.context, kMiB, to.stream));
    if (i % 50 == 0) MUST(cuStreamSynchronize(to.stream));
  }
  MUST(cuStreamSynchronize(to.stream));
}

// `reader` reaches the other's memory, and then no more.
void peer_for_a_while(const Worker& reader, const Worker& owner) {
  const CUdeviceptr source = new_block(owner, kMiB), total = new_block(reader, 4096);
  MUST(cuCtxEnablePeerAccess(owner.context, 0));
  MUST(timed::sum_words(reader.kernels, reader.stream, source, 64, total, 0));
  MUST(cuCtxSynchronize());
  MUST(cuCtxDisablePeerAccess(owner.context));
}

CUgraphExec captured_work(const Worker& worker) {
  const CUdeviceptr block = new_block(worker, kMiB);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(worker.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(timed::fill_words(worker.kernels, worker.stream, block, 64, 1, 0));
  MUST(cuMemsetD8Async(block, 1, kMiB, worker.stream));
  MUST(cuStreamEndCapture(worker.stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

CUcontext second_context(bool same_device) {
  CUcontext context = nullptr;
  if (!same_device) return use_device(1);
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  return context;
}

void loop(const Worker& worker, bool whole_context) {
  worker.use();
  for (int round = 0; round < kRounds; ++round) {
    CUdeviceptr block = 0;
    MUST(cuMemAlloc(&block, kBytes));
    MUST(timed::fill_words(worker.kernels, worker.stream, block, 64, 1, 0));
    if (whole_context) {
      MUST(cuCtxSynchronize());
    } else {
      MUST(cuStreamSynchronize(worker.stream));
    }
    MUST(cuMemFree(block));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto is = [&](const char* name) { return std::strcmp(argv[1], name) == 0; };
  const bool whole_context = std::strcmp(argv[2], "context") == 0;
  end_if_it_hangs();
  const Worker first(use_device(0));
  const Worker second(second_context(is("same_device")));
  if (is("broadcast")) broadcast(first, second, 1);
  if (is("broadcasts")) broadcast(first, second, 300);
  if (is("was_peer")) peer_for_a_while(second, first);
  if (is("other_way")) {
    first.use();
    MUST(cuCtxEnablePeerAccess(second.context, 0));
  }
  second.use();
  CUgraphExec exec = is("graph") ? captured_work(second) : nullptr;
  timed::Held held(second.kernels, second.stream);
  if (exec != nullptr) MUST(cuGraphLaunch(exec, second.stream));
  const DriverMemory before = driver_memory();
  loop(first, whole_context);
  const DriverMemory after = driver_memory();
  const bool few = after.most <= before.held + 3 * kBytes;
  std::printf("the driver gave little more than one block: %d\n", few);
  if (!few) std::printf("it gave %zu MiB\n", static_cast<size_t>(after.most / kMiB));
  const auto marks = static_cast<int>(after.marks - before.marks);
  if (marks > kMostMarks) std::printf("events recorded: %d\n", marks);
  held.end();
  second.use();
  MUST(cuCtxSynchronize());
  std::printf("done\n");
  return 0;
}
