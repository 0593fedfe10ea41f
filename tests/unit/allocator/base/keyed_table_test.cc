// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/records.h"

#include <array>

#include "tests/catch.h"

namespace keyed_table_test {

namespace {

struct Record {
  Record* next;
  uint64_t key;
  int value;
};

using Table = cistern::alloc::KeyedTable<Record, 2>;  // few buckets: chains

}  // namespace

TEST_CASE("records are found by their key until they are removed") {
  Table table;
  std::array<Record, 100> records{};
  for (int i = 0; i < 100; ++i) {
    records[i] = {nullptr, static_cast<uint64_t>(i) << 21, i};
    table.insert(&records[i]);
  }
  for (Record& record : records) REQUIRE(table.find(record.key) == &record);
  for (int i = 0; i < 100; i += 2) table.remove(&records[i]);
  for (int i = 0; i < 100; ++i) {
    CHECK(table.find(records[i].key) == (i % 2 == 0 ? nullptr : &records[i]));
  }
  CHECK(table.find(12345) == nullptr);
}

TEST_CASE("of records with the same key the last inserted is found, or the one wanted") {
  Table table;
  Record first{nullptr, 7, 1}, second{nullptr, 7, 2};
  table.insert(&first);
  table.insert(&second);
  CHECK(table.find(7) == &second);
  CHECK(table.find(7, [](const Record& r) { return r.value == 1; }) == &first);
  table.remove(&second);
  CHECK(table.find(7) == &first);
}

TEST_CASE("all records with a property are taken out as a list, and others stay") {
  Table table;
  std::array<Record, 30> records{};
  for (int i = 0; i < 30; ++i) {
    records[i] = {nullptr, static_cast<uint64_t>(i), i % 3};
    table.insert(&records[i]);
  }
  int taken = 0;
  for (Record* r = table.remove_all([](const Record& x) { return x.value == 1; }); r != nullptr;
       r = r->next) {
    CHECK(r->value == 1);
    ++taken;
  }
  CHECK(taken == 10);
  CHECK(table.search([](const Record& r) { return r.value == 1; }) == nullptr);
  CHECK(table.find(0) == &records[0]);
  CHECK(table.find(29) == &records[29]);
}

}  // namespace keyed_table_test
