// SPDX-License-Identifier: Apache-2.0
// Captures: work on blocks recorded on one or two streams, launched as a graph, while other threads
// allocate and free.
#pragma once

#include "worker.h"

namespace random_work {

// Other threads' captures in global mode forbid a thread to allocate unless its own mode says
// otherwise.
inline void Worker::allow_global_captures() {
  mode_ = number_ % 2 == 0 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED;
  CUstreamCaptureMode mode = mode_;
  tally_.note("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
}

inline CUstreamCaptureMode Worker::capture_mode() {
  constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED,
                                            CU_STREAM_CAPTURE_MODE_GLOBAL};
  const bool global = world_.settings.threads == 1 || world_.settings.global != 0;
  return kModes[random_.below(global ? 3 : 2)];
}

// The body may be replayed: each block is written, then checked.
inline void Worker::capture_body(const std::vector<Block*>& blocks, Lane& first, Lane& second,
                                 bool relaxed) {
  const std::shared_ptr<Event> fork = mark(first);
  tally_.note("cuStreamWaitEvent", cuStreamWaitEvent(second.stream, fork->handle, 0));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Lane& lane = i % 2 == 0 ? first : second;
    for (const Window& window : blocks[i]->windows()) {
      fill(*blocks[i], window, lane);
      ask_kernel(*blocks[i], window, lane);
    }
  }
  if (relaxed) {
    CUdeviceptr address = 0;
    tally_.note("cuMemAlloc in a capture", cuMemAlloc(&address, draw_size()));
    tally_.note("cuMemFree in a capture", cuMemFree(address));
  }
  const std::shared_ptr<Event> join = mark(second);
  tally_.note("cuStreamWaitEvent", cuStreamWaitEvent(first.stream, join->handle, 0));
}

inline CUgraph Worker::record(const std::vector<Block*>& blocks, Station& station) {
  const std::shared_lock lock(captures_);
  const CUstreamCaptureMode mode = capture_mode();
  Lane& first = station.lanes[Lane::kFree];
  CUgraph graph = nullptr;
  tally_.note("cuStreamBeginCapture", cuStreamBeginCapture(first.stream, mode));
  // What is asked for in a capture is the driver's to answer: no pool makes room for it.
  const bool relaxed =
      (mode == CU_STREAM_CAPTURE_MODE_RELAXED || mode_ == CU_STREAM_CAPTURE_MODE_RELAXED) &&
      world_.settings.must_fit == 0;
  capture_body(blocks, first, station.lanes[Lane::kOtherFree], relaxed);
  tally_.note("cuStreamEndCapture", cuStreamEndCapture(first.stream, &graph));
  return graph;
}

inline std::vector<Block*> Worker::blocks_to_capture(const Station& station) {
  std::vector<Block*> blocks;
  for (Block& block : held_) {
    if (block.place == station.place && block.has_words() && blocks.size() < 3) {
      blocks.push_back(&block);
    }
  }
  return blocks;
}

// What a stream still has to do when it ends, no event can be recorded behind during a capture.
inline void Worker::lose_stream() {
  Station& station = any_station();
  Lane& lane = station.lanes[Lane::kOtherFree];
  for (Block& block : held_) {
    if (block.place == station.place && block.has_words()) {
      order(block, lane, random_);
      renew(block);
      for (const Window& window : block.windows()) fill(block, window, lane);
      break;
    }
  }
  forget_lane(lane);
  enter(*station.place);
  CUgraph graph = nullptr;
  {
    const std::shared_lock lock(captures_);
    const Lane& captured = station.lanes[Lane::kFree];
    tally_.note("cuStreamBeginCapture", cuStreamBeginCapture(captured.stream, capture_mode()));
    close(lane);
    tally_.note("cuStreamEndCapture", cuStreamEndCapture(captured.stream, &graph));
  }
  open(lane);
  tally_.note("cuGraphDestroy", cuGraphDestroy(graph));
}

inline void Worker::capture() {
  Station& station = any_station();
  const std::vector<Block*> blocks = blocks_to_capture(station);
  for (Block* block : blocks) renew(*block);
  CUgraphExec executable = nullptr;
  enter(*station.place);
  CUgraph graph = record(blocks, station);
  if (!tally_.note("cuGraphInstantiate", cuGraphInstantiate(&executable, graph, 0))) return;
  tally_.note("cuGraphDestroy", cuGraphDestroy(graph));

  Lane& lane = any_lane(station, random_);
  for (Block* block : blocks) order(*block, lane, random_);
  enter(*station.place);
  for (uint64_t launches = 1 + random_.below(2); launches > 0; --launches) {
    tally_.note("cuGraphLaunch", cuGraphLaunch(executable, lane.stream));
  }
  tally_.note("cuGraphExecDestroy", cuGraphExecDestroy(executable));
}

}  // namespace random_work
