// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/size_bins.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace size_bins_test {

namespace {

struct Item {
  uint64_t size;
  Item* next;
  Item* prev;
};

struct Traits {
  static uint64_t size(const Item* i) { return i->size; }
  static Item*& next(Item* i) { return i->next; }
  static Item* prev(Item* i) { return i->prev; }
  static void set_prev(Item* i, Item* p) { i->prev = p; }
};

using Bins = cistern::alloc::SizeBins<Item, Traits, 44>;
constexpr uint64_t kAny = ~uint64_t{0};

}  // namespace

TEST_CASE("an exact size is preferred to a larger one") {
  Bins bins;
  Item larger{1001, {}, {}}, exact{1000, {}, {}};
  bins.insert(&exact);
  bins.insert(&larger);
  CHECK(bins.find(1000, kAny, 8) == &exact);
}

TEST_CASE("nothing smaller than asked and nothing above the limit is found") {
  Bins bins;
  Item small{999, {}, {}}, large{3000, {}, {}};
  bins.insert(&small);
  bins.insert(&large);
  CHECK(bins.find(1000, kAny, 8) == &large);
  CHECK(bins.find(1000, 2999, 8) == nullptr);
  CHECK(bins.find(3001, kAny, 8) == nullptr);
}

TEST_CASE("what is found fits and wastes at most one step, over a random life") {
  auto bins = std::make_unique<Bins>();
  std::mt19937_64 random(11);
  std::vector<std::unique_ptr<Item>> in;
  for (int i = 0; i < 20000; ++i) {
    if (in.size() < 200 && random() % 2 == 0) {
      const uint64_t size = 1 + (random() >> (20 + random() % 40));
      in.push_back(std::make_unique<Item>(Item{size, nullptr, nullptr}));
      bins->insert(in.back().get());
    } else if (!in.empty()) {
      const size_t victim = random() % in.size();
      bins->remove(in[victim].get());
      in[victim] = std::move(in.back());
      in.pop_back();
    }
    uint64_t largest = 0;
    for (const auto& item : in) largest = std::max(largest, item->size);
    REQUIRE(bins->largest() == largest);
    const uint64_t want = 1 + (random() >> (20 + random() % 40));
    uint64_t best = kAny;
    for (const auto& item : in) {
      if (item->size >= want) best = std::min(best, item->size);
    }
    const Item* found = bins->find(want, kAny, 1000);
    REQUIRE((found != nullptr) == (best != kAny));
    if (found != nullptr) REQUIRE(found->size <= best + best / 32);
  }
}

}  // namespace size_bins_test
