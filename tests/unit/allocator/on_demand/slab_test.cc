// SPDX-License-Identifier: Apache-2.0
// A slab's boundary tags against a plain model, with few blocks and with many, and where it changes
// from the one to the other.
#include "allocator/on_demand/slab.h"

#include <iterator>
#include <map>
#include <memory>
#include <random>

#include "tests/catch.h"

namespace slab_test {

using namespace cistern::alloc;

namespace {

// Blocks by start; every granule belongs to one.
class Model {
 public:
  Model() : slab_(arena_.take()) {
    chunk_.set_range(kBase, kSlabBytes);
    blocks_[0] = slab_->open(&chunk_);
  }
  ~Model() { arena_.give_back(slab_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  size_t count() const { return blocks_.size(); }
  bool has_own_records_only() const { return slab_->pairs == nullptr; }
  bool has_map() const { return slab_->half == 0; }

  // A block that is clean, or one that is not: the next at or after `granule`, else the first.
  Block* any(bool clean, uint32_t granule) {
    for (auto it = blocks_.lower_bound(granule); it != blocks_.end(); ++it) {
      if ((it->second->is() == BlockState::clean) == clean) return it->second;
    }
    return granule == 0 ? nullptr : any(clean, 0);
  }

  void take(Block* block, uint32_t granules) {
    if (Block* rest = slab_->split(block, granules)) blocks_[rest->start] = rest;
    block->become(BlockState::live);
    block->requested = (granules * kGranuleBytes - 1) & 0xffffff;
  }

  void give_back(Block* block) {
    if (Block* after = slab_->clean_after(block)) {
      blocks_.erase(after->start);
      slab_->join(block, after);
    }
    if (Block* before = slab_->clean_before(block)) {
      blocks_.erase(block->start);
      slab_->join(before, block);
      block = before;
    }
    slab_->set_clean(block);
  }

  // What the slab says of each granule and of each block's neighbours is what the model says.
  void check() {
    for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
      const auto [start, block] = *it;
      const auto next = std::next(it);
      REQUIRE(block->start + block->granules == (next == blocks_.end() ? kGranules : next->first));
      REQUIRE(slab_->starting_at(start) == block);
      REQUIRE(Slab::of(block) == slab_);
      REQUIRE(slab_->clean_after(block) == (next == blocks_.end() ? nullptr : clean(next->second)));
      REQUIRE(slab_->clean_before(block) == (start == 0 ? nullptr : clean(std::prev(it)->second)));
    }
    for (uint32_t granule = 0; granule < kGranules; ++granule) {
      const Block* block = std::prev(blocks_.upper_bound(granule))->second;
      const bool live = block->is() == BlockState::live;
      const uint64_t address = kBase + uint64_t{granule} * kGranuleBytes;
      REQUIRE(slab_->live_at(address) == (live && block->start == granule ? block : nullptr));
      REQUIRE(slab_->live_at(address + 1) == nullptr);
      REQUIRE(slab_->live_around(address + 1) == (live ? block : nullptr));
    }
  }

 private:
  static constexpr uint64_t kBase = uint64_t{0x7f} << 40;
  static Block* clean(Block* block) { return block->is() == BlockState::clean ? block : nullptr; }

  SlabArena arena_;
  Chunk chunk_{};
  Slab* slab_;
  std::map<uint32_t, Block*> blocks_;
};

}  // namespace

TEST_CASE("a slab knows its blocks while they are few, as they become many, and again few",
          "[slab]") {
  Model model;
  std::mt19937 random(GENERATE(1u, 2u, 3u));
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  // Around each number at which a slab takes something.
  const uint32_t most = Slab::kMostInOrder;
  for (const uint32_t target : {Slab::kFew - 1, Slab::kFew, Slab::kFew + 1, 15u, 17u, 5u, 33u, 300u,
                                most - 1, most, most + 1, 900u, 5u}) {
    while (Block* block = model.any(false, 0)) model.give_back(block);
    for (uint32_t i = 0; i < 400 + 2 * target; ++i) {
      const bool grow = model.count() < target;
      if (Block* block = model.any(grow, below(kGranules))) {
        grow ? model.take(block, 1 + below(1 + block->granules / target)) : model.give_back(block);
      }
    }
    model.check();
  }
  CHECK(model.has_map());
}

TEST_CASE("few blocks take no more bookkeeping than the slab itself, one more does", "[slab]") {
  Model model;
  for (size_t i = 1; i < Slab::kFew; ++i) model.take(model.any(true, 0), 1);
  CHECK(model.count() == Slab::kFew);
  CHECK(model.has_own_records_only());
  model.check();
  model.take(model.any(true, 0), 1);
  CHECK_FALSE(model.has_own_records_only());
  model.check();
}

TEST_CASE("a map comes with the first block that the table by address does not take", "[slab]") {
  Model model;
  for (size_t i = 1; i < Slab::kMostInOrder; ++i) {
    model.take(model.any(true, 0), 1);
    if (i < 36 || i % 64 < 2) model.check();
  }
  CHECK(model.count() == Slab::kMostInOrder);
  CHECK_FALSE(model.has_map());
  model.check();
  model.take(model.any(true, 0), 1);
  CHECK(model.has_map());
  model.check();
}

TEST_CASE("the last granule of a slab is found with as few blocks as with many", "[slab]") {
  Model model;
  model.take(model.any(true, 0), kGranules - 1);
  model.check();
  model.take(model.any(true, kGranules - 1), 1);
  model.check();
  model.give_back(model.any(false, 0));
  model.check();
}

}  // namespace slab_test
