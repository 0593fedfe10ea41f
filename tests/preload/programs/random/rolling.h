// SPDX-License-Identifier: Apache-2.0
// Executable graphs that a thread keeps: the one used longest ago is given the next step, or makes
// room for it. Blocks are freed while graphs that name them live; those are not launched again.
#pragma once

#include "worker.h"

namespace random_work {

inline void Worker::roll_graph() {
  Station& station = any_station();
  Rolled rolled{nullptr, &station, {}, 0};
  std::vector<Block*> blocks = blocks_to_capture(station);
  // In this order, more graphs look the same.
  std::sort(blocks.begin(), blocks.end(),
            [](const Block* a, const Block* b) { return a->bytes < b->bytes; });
  for (Block* block : blocks) {
    renew(*block);
    rolled.steps.push_back({block->id, block->pattern});
    rolled.shape = rolled.shape * 4 + block->windows().size();
  }
  enter(*station.place);
  CUgraph graph = record(blocks, station);
  rolled.executable = renew_executable(rolled, graph);
  tally_.note("cuGraphDestroy", cuGraphDestroy(graph));
  if (rolled.executable == nullptr) return;
  launch_rolled(rolled, blocks);
  graphs_.push_back(std::move(rolled));
}

// Made anew, or from the graph used longest ago that looks the same. Now and then it does not, and
// stays what it was.
inline CUgraphExec Worker::renew_executable(const Rolled& wanted, CUgraph graph) {
  CUgraphExec executable = nullptr;
  const bool full = graphs_.size() >= world_.settings.graphs;
  const bool alike = random_.percent(90);
  const auto oldest = std::find_if(graphs_.begin(), graphs_.end(), [&](const Rolled& one) {
    return one.station == wanted.station && (one.shape == wanted.shape || !alike);
  });
  if (oldest != graphs_.end() && random_.percent(full ? 80 : 20)) {
    CUgraphExecUpdateResultInfo result{};
    if (tally_.note("cuGraphExecUpdate", cuGraphExecUpdate(oldest->executable, graph, &result))) {
      executable = oldest->executable;
      graphs_.erase(oldest);
      return executable;
    }
  }
  if (full) drop_graphs(graphs_.begin(), graphs_.begin() + 1);
  enter(*wanted.station->place);
  tally_.note("cuGraphInstantiate", cuGraphInstantiate(&executable, graph, 0));
  return executable;
}

inline void Worker::launch_rolled(const Rolled& rolled, const std::vector<Block*>& blocks) {
  Lane& lane = any_lane(*rolled.station, random_);
  for (Block* block : blocks) order(*block, lane, random_);
  enter(*rolled.station->place);
  tally_.note("cuGraphLaunch", cuGraphLaunch(rolled.executable, lane.stream));
}

// One that was launched before writes what it wrote then, as long as all its blocks are held.
inline void Worker::launch_again() {
  if (graphs_.empty()) return;
  const auto chosen = graphs_.begin() + static_cast<ptrdiff_t>(random_.below(graphs_.size()));
  Rolled rolled = std::move(*chosen);
  graphs_.erase(chosen);
  std::vector<Block*> blocks;
  for (const auto& [id, pattern] : rolled.steps) {
    for (Block& block : held_) {
      if (block.id == id) blocks.push_back(&block);
    }
  }
  if (blocks.size() == rolled.steps.size()) {
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i]->pattern = rolled.steps[i].pattern;
    launch_rolled(rolled, blocks);
  }
  graphs_.push_back(std::move(rolled));
}

inline void Worker::drop_graphs(std::deque<Rolled>::iterator from,
                                std::deque<Rolled>::iterator to) {
  for (auto one = from; one != to; ++one) {
    tally_.note("cuGraphExecDestroy", cuGraphExecDestroy(one->executable));
  }
  graphs_.erase(from, to);
}

inline void Worker::drop_graphs_of(const Station& station) {
  const auto its = std::stable_partition(
      graphs_.begin(), graphs_.end(), [&](const Rolled& one) { return one.station != &station; });
  drop_graphs(its, graphs_.end());
}

}  // namespace random_work
