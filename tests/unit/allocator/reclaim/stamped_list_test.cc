// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/tickets.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace stamped_list_test {

using namespace cistern::alloc;

namespace {

struct Item {
  Item* next;
  uint64_t stamp;
};

struct Links {
  static Item*& next(Item* i) { return i->next; }
  static uint64_t stamp(const Item* i) { return i->stamp; }
  static void set_stamp(Item* i, uint64_t stamp) { i->stamp = stamp; }
};

using List = StampedList<Item, Links>;

std::vector<uint64_t> stamps(const List& list) {
  std::vector<uint64_t> all;
  for (const Item* i = list.oldest(); i != nullptr; i = i->next) all.push_back(i->stamp);
  if (!all.empty()) CHECK(list.newest()->stamp == all.back());
  return all;
}

}  // namespace

TEST_CASE("lists that are merged are in the order of their stamps, and nothing is lost") {
  std::mt19937 random(GENERATE(1u, 2u, 3u, 4u, 5u));
  for (int round = 0; round < 200; ++round) {
    std::deque<Item> items;
    std::vector<uint64_t> all;
    List lists[2];
    for (List& list : lists) {
      uint64_t stamp = random() % 20;
      for (auto n = random() % 8; n > 0; --n) {
        items.push_back({});
        list.append(&items.back(), stamp);
        all.push_back(stamp);
        stamp += random() % 4;
      }
    }
    std::sort(all.begin(), all.end());
    lists[0].merge(lists[1]);
    CHECK(stamps(lists[0]) == all);
    CHECK(lists[1].oldest() == nullptr);
    CHECK(lists[1].newest() == nullptr);
  }
}

TEST_CASE("items taken out of a list leave the others in their order") {
  std::deque<Item> items(9);
  List list;
  for (Item& item : items) list.append(&item, static_cast<uint64_t>(&item - &items[0]));
  list.remove_if([](const Item* item) { return item->stamp % 3 == 2; });
  CHECK(stamps(list) == std::vector<uint64_t>{0, 1, 3, 4, 6, 7});
  while (list.oldest() != nullptr) list.pop();
  CHECK(list.newest() == nullptr);
  list.append(&items[4], 12);
  CHECK(stamps(list) == std::vector<uint64_t>{12});
}

}  // namespace stamped_list_test
