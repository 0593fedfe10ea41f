// SPDX-License-Identifier: Apache-2.0
// One thread of the random program. What it does is drawn from its own numbers alone, never from
// what other threads or the device do, so that every run of a seed does and prints the same.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "hand.h"

namespace random_work {

// Blocks on their way to another thread.
class Post {
 public:
  void put(Block block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  bool take(Block* block) {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return false;
    *block = std::move(blocks_.back());
    blocks_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

// What all threads share.
struct World {
  Settings settings;
  std::vector<Place> primaries;
  std::vector<Post> posts;  // one a thread
  std::shared_mutex captures;
};

class Worker : public Hand {
 public:
  Worker(World& world, Tally& tally, uint64_t number, uint64_t round)
      : Hand(world.settings, tally, world.captures),
        world_(world),
        number_(number),
        random_(world.settings.seed * 1000003 + number * 1009 + round),
        next_id_((round << 32) + (number << 24)) {
    if (world.settings.threads > 1 && world.settings.global != 0) allow_global_captures();
    for (Place& place : world.primaries) arrive(place);
    take_words();
  }

  void run(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) {
      step();
      take_post();
    }
    end_graphs();
    if (world_.settings.marks != 0) mark_each_graph();
  }

  // What is left goes to another thread.
  void finish(Post& heir) {
    dismiss_helper();
    if (own_ != nullptr) end_own_context();
    for (Block& block : held_) hand_over(block, heir);
    held_.clear();
    drop_graphs(graphs_.begin(), graphs_.end());
    enter(world_.primaries[0]);
    while (!pinned_.empty()) unpin(0);
    for (auto& station : stations_) leave(*station);
    return_words();
  }

  // A block from another thread: its own numbers decide, as nobody knows when it arrives.
  // So nothing relies on its free.
  void retire(Block& block) {
    Random random(block.id);
    check(block, random);
    const uint64_t before = home(block).freed_after;
    free(block, random);
    home(block).freed_after = before;
  }

  void take_post() {
    Block block;
    if (world_.posts[number_].take(&block)) retire(block);
  }

 private:
  struct Operation {
    const char* name;
    void (Worker::*run)();
    uint64_t weight;
    uint64_t Settings::*setting = nullptr;  // its weight is what this says
  };
  struct Rolled {  // an executable graph, and what it writes into which blocks
    struct Step {
      uint64_t id;
      uint32_t pattern;
    };
    CUgraphExec executable;
    Station* station;
    std::vector<Step> steps;
    uint64_t shape;  // a digit for each block, to base 4: its nodes
  };
  struct Pinned {  // words[i] = seed + i
    uint32_t* words;
    size_t count;
    uint32_t seed;
    const Place* place;  // of the copy out of it, which is this access of the thread
    uint64_t access;
  };
  struct Hired;  // a thread of the class Helper
  static const Operation kOperations[];

  uint64_t weight_of(const Operation& operation) const;
  void step();

  // operations.h
  void allocate_one();
  void retire_one();
  void rewrite_one();
  void check_one();
  void copy_one();
  void give_one();
  void use_scratch();
  void export_one();
  void synchronize();
  void renew_stream();
  void ask();
  void free_wrongly();
  void free_twice();
  void ask_too_much();
  void take_all();
  CUdeviceptr obtain_all(size_t* bytes);
  void return_all(CUdeviceptr all, size_t bytes);
  // captures.h
  void capture();
  void lose_stream();
  std::vector<Block*> blocks_to_capture(const Station& station);
  void capture_body(const std::vector<Block*>& blocks, Lane& first, Lane& second, bool relaxed);
  CUgraph record(const std::vector<Block*>& blocks, Station& station);
  CUstreamCaptureMode capture_mode();
  void allow_global_captures();
  // rolling.h
  void roll_graph();
  void launch_again();
  CUgraphExec renew_executable(const Rolled& wanted, CUgraph graph);
  void launch_rolled(const Rolled& rolled, const std::vector<Block*>& blocks);
  void drop_graphs(std::deque<Rolled>::iterator from, std::deque<Rolled>::iterator to);
  void drop_graphs_of(const Station& station);
  // ahead.h
  void take_words();
  void return_words();
  void run_ahead();
  void step_ahead();
  void free_on_stream();
  // pinning.h
  void use_pinned();
  void write_from_pinned(Block& block);
  void unpin(size_t index);
  // marks.h
  void mark_graph();
  void end_graphs();
  void mark_each_graph();
  // peers.h
  void turn_peers();
  // helper.h
  void replace_helper();
  void dismiss_helper();
  // own_context.h
  void own_context();
  void begin_own_context();
  void end_own_context();
  void forget_lane(const Lane& lane);

  void hand_over(Block& block, Post& heir) {
    if (world_.settings.relies != 0) rely_on_free(block);
    if (block.lane != nullptr && !block.lane->place->primary) settle(block, random_);
    if (block.ready && !block.ready->place->primary) settle(block, random_);
    if (block.lane != nullptr) block.ready = mark(*block.lane);
    block.lane = nullptr;
    block.accesses = 0;  // the heir counts its own
    heir.put(std::move(block));
  }

  Station& any_station() { return *stations_[random_.below(stations_.size())]; }
  size_t draw_size();
  Block draw_block();
  bool make_room(const Block& wanted);
  bool obtain(Block block);

  // What the driver takes for a block, at most, when many small ones share its pages.
  static uint64_t charge(const Block& block) {
    constexpr uint64_t kPage = uint64_t{2} << 20;
    if (block.bytes >= kPage / 2) return (block.bytes + kPage - 1) / kPage * kPage;
    return block.bytes + 1024;
  }
  uint64_t charged_on(CUdevice device) const {
    uint64_t bytes = 0;
    for (const Block& block : held_) bytes += block.place->device == device ? charge(block) : 0;
    return bytes;
  }

  // Takes a block out of those held.
  Block pick() { return take_out(random_.below(held_.size())); }
  Block take_out(size_t index) {
    std::swap(held_[index], held_.back());
    Block block = std::move(held_.back());
    held_.pop_back();
    return block;
  }

  World& world_;
  const uint64_t number_;
  Random random_;
  uint64_t next_id_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_GLOBAL;  // of this thread
  std::vector<Block> held_;
  Place own_place_;
  Place* own_ = nullptr;  // or own_place_
  std::vector<Pinned> pinned_;
  std::deque<Rolled> graphs_;  // the one used last is the last
  static constexpr size_t kWords = 4096;
  uint32_t* words_ = nullptr;  // pinned
  size_t words_used_ = 0;
  unsigned marked_ = 0;  // graphs that are open, one inside the other
  std::unique_ptr<Hired> hired_;
};

}  // namespace random_work

#include "ahead.h"
#include "captures.h"
#include "helper.h"
#include "marks.h"
#include "operations.h"
#include "own_context.h"
#include "peers.h"
#include "pinning.h"
#include "rolling.h"
