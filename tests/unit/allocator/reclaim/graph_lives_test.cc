// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/graph_lives.h"

#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace graph_lives_test {

using namespace cistern::alloc;

namespace {

struct Item {
  Item* next;
  uint64_t stamp;
  Epoch born, freed;
  bool parked, released;  // released: at some moment since its free no graph held it
};

struct Links {
  static Item*& next(Item* i) { return i->next; }
  static uint64_t stamp(const Item* i) { return i->stamp; }
  static void set_stamp(Item* i, uint64_t stamp) { i->stamp = stamp; }
  static uint64_t bytes(const Item*) { return 1; }
};

bool held(GraphLives& lives, Epoch born, Epoch freed) {
  return GraphLives::Look(lives).held(born, freed);
}

}  // namespace

TEST_CASE("a graph holds what was alive between its beginning and its end") {
  auto lives = std::make_unique<GraphLives>();
  const Epoch before = lives->now();
  const Epoch begin = lives->begin();
  GraphLife graph = {};
  lives->hold(&graph, begin, 0);
  const Epoch after = lives->now();
  CHECK_FALSE(held(*lives, before, before));
  CHECK(held(*lives, before, begin));
  CHECK(held(*lives, before, after));
  CHECK(held(*lives, begin, begin));
  CHECK_FALSE(held(*lives, after, after));
  CHECK(lives->parks(begin));
  CHECK_FALSE(lives->parks(after));
  lives->release(&graph, 0);
  CHECK_FALSE(held(*lives, before, after));
  CHECK_FALSE(lives->parks(before));
  CHECK(lives->none());
}

TEST_CASE("only a change that may let something go counts as one") {
  auto lives = std::make_unique<GraphLives>();
  GraphLife graph = {}, other = {};
  lives->hold(&graph, 0, 0);
  lives->hold(&other, lives->begin(), 0);
  lives->hold(&graph, 0, 0);  // more than before
  CHECK(lives->changes() == 0);
  lives->hold(&graph, lives->begin(), 0);
  CHECK(lives->changes() == 1);
  lives->release(&graph, 0);
  CHECK(lives->changes() == 2);
  lives->release(&graph, 0);
  CHECK(lives->changes() == 2);
  lives->capturing(lives->begin(), 0);
  CHECK(lives->changes() == 2);
  lives->capturing(GraphLives::kEverything, 0);
  CHECK(lives->changes() == 3);
  CHECK(lives->watched_changes() == 0);
  CHECK(held(*lives, 0, lives->now()));
  lives->release(&other, 0);
  CHECK(lives->watched_changes() == 1);
}

TEST_CASE("what is parked is what a living graph may hold, through any changes of graphs") {
  const unsigned seed = GENERATE(range(0u, 20u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  auto lives = std::make_unique<GraphLives>();
  std::vector<GraphLife> graphs(1 + seed % 9);
  std::vector<Item> items(400);
  Parked<Item, Links> parked;
  Epoch capturing = GraphLives::kEverything;
  size_t born = 0, freed = 0;
  const auto leave = [](Item* item) { item->parked = false; };
  // By the definition, apart from the order and the lists.
  const auto must_stay = [&](const Item& item) {
    bool stays = capturing <= item.freed;
    for (const GraphLife& g : graphs) stays |= g.end > item.born && g.begin <= item.freed;
    return stays;
  };
  Epoch begin = 0;
  while (freed < items.size()) {
    GraphLife& graph = graphs[random() % graphs.size()];
    switch (random() % 8) {
      case 0:
        begin = lives->begin();
        break;
      case 1:
        lives->hold(&graph, begin, 0);
        break;
      case 2:
        lives->release(&graph, 0);
        break;
      case 3:
        capturing = random() % 2 == 0 ? lives->begin() : GraphLives::kEverything;
        lives->capturing(capturing, 0);
        break;
      case 4:
        if (born < items.size()) items[born++].born = lives->now();
        break;
      default:
        if (freed < born) {
          Item& item = items[freed++];
          item.freed = lives->now();
          REQUIRE(lives->parks(item.born) == must_stay(item));
          if (!must_stay(item)) break;
          item.parked = true;
          parked.park(&item, item.born, *lives, 0, leave);
        }
    }
    for (size_t i = 0; i < freed; ++i) items[i].released |= !must_stay(items[i]);
    // Never too early; and once enough calls have paid for it, never too late.
    const bool enough = random() % 16 == 0;
    for (int i = 0; parked.may_leave(*lives) && i < (enough ? 1000 : 1); ++i) {
      parked.look(*lives, leave);
    }
    for (size_t i = 0; i < freed; ++i) {
      const Item& item = items[i];
      REQUIRE((item.parked || item.released));
      if (enough && item.parked) REQUIRE(must_stay(item));
    }
  }
}

TEST_CASE("looks cost constant time for each block, beside a graph that holds many for long") {
  auto lives = std::make_unique<GraphLives>();
  GraphLife long_lived = {}, updated = {};
  std::vector<Item> many(100000);
  Parked<Item, Links> parked;
  int left = 0;
  const auto leave = [&](Item*) { ++left; };
  lives->hold(&long_lived, 0, 0);
  for (Item& item : many) parked.park(&item, 0, *lives, 0, leave);
  std::vector<Item> steps(20000);
  for (Item& item : steps) {
    const Epoch begin = lives->begin(), born = lives->now();
    lives->hold(&updated, begin, 0);
    if (parked.may_leave(*lives)) parked.look(*lives, leave);
    parked.park(&item, born, *lives, 0, leave);
  }
  // All but the last step's, without a look through the many.
  CHECK(left == 19999);
  CHECK(lives->watched_changes() <= 1);
  lives->release(&updated, 0);
  lives->release(&long_lived, 0);
  parked.look(*lives, leave);
  CHECK(parked.empty());
}

TEST_CASE("one look is enough for few blocks that a graph held which has changed") {
  auto lives = std::make_unique<GraphLives>();
  GraphLife graph = {}, other = {};
  std::vector<Item> items(8);
  Parked<Item, Links> parked;
  int left = 0;
  const auto leave = [&](Item*) { ++left; };
  lives->hold(&graph, 0, 0);
  for (Item& item : items) parked.park(&item, 0, *lives, 0, leave);
  lives->hold(&other, lives->begin(), 0);
  lives->release(&other, 0);
  REQUIRE(parked.may_leave(*lives));
  parked.look(*lives, leave);
  CHECK(left == 0);
  lives->hold(&other, lives->begin(), 0);
  lives->release(&graph, 0);
  REQUIRE(parked.may_leave(*lives));
  parked.look(*lives, leave);
  CHECK(left == 8);
}

TEST_CASE("a stamp has room for any two epochs") {
  const uint64_t stamp = ParkedSpan::stamp(UINT32_MAX - 1, UINT32_MAX);
  CHECK(ParkedSpan::born(stamp) == UINT32_MAX - 1);
  CHECK(ParkedSpan::freed(stamp) == UINT32_MAX);
}

}  // namespace graph_lives_test
