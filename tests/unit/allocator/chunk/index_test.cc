// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/index.h"

#include <map>
#include <memory>
#include <random>

#include "allocator/base/records.h"
#include "tests/catch.h"

namespace index_test {

using namespace cistern::alloc;

namespace {

constexpr uint64_t kPage = uint64_t{2} << 20;

struct Chunks {
  Chunk* add(uint64_t address, uint64_t bytes, uint16_t owner = 0) {
    Chunk* chunk = arena.take();
    chunk->address = address;
    chunk->bytes = bytes;
    chunk->move_to({owner, Role::whole, 0});
    REQUIRE(index.insert(chunk));
    return chunk;
  }
  Arena<Chunk> arena;
  Index index;
};

}  // namespace

TEST_CASE("an address belongs to the chunk that contains it, to the last byte") {
  auto c = std::make_unique<Chunks>();
  const uint64_t base = 7 * kPage + 512;
  const uint64_t bytes = GENERATE(uint64_t{512}, kPage, 3 * kPage + 17);
  Chunk* chunk = c->add(base, bytes);
  CHECK(c->index.find(base) == chunk);
  CHECK(c->index.find(base + bytes - 1) == chunk);
  CHECK(c->index.find(base + bytes / 2) == chunk);
  CHECK(c->index.find(base - 1) == nullptr);
  CHECK(c->index.find(base + bytes) == nullptr);
  c->index.remove(chunk);
  CHECK(c->index.find(base) == nullptr);
  CHECK(c->index.find(base + bytes - 1) == nullptr);
}

TEST_CASE("chunks that share a page are told apart") {
  auto c = std::make_unique<Chunks>();
  Chunk* a = c->add(kPage * 5 - 4096, 8192);
  Chunk* b = c->add(kPage * 5 + 4096, 512);
  Chunk* d = c->add(kPage * 5 + 8192, kPage);
  CHECK(c->index.find(kPage * 5) == a);
  CHECK(c->index.find(kPage * 5 + 4096) == b);
  CHECK(c->index.find(kPage * 5 + 8192) == d);
  CHECK(c->index.find(kPage * 6) == d);
  c->index.remove(b);
  CHECK(c->index.find(kPage * 5 + 4096) == nullptr);
  CHECK(c->index.find(kPage * 5) == a);
}

TEST_CASE("chunks that reach into the next page leave each other's pages alone") {
  auto c = std::make_unique<Chunks>();
  const uint64_t page = GENERATE(6, 7) * kPage;
  Chunk* a = c->add(page - 4096, kPage / 2);
  Chunk* b = c->add(page + kPage / 2, kPage);
  Chunk* d = c->add(page + 2 * kPage - 4096, kPage / 2);
  CHECK(c->index.find(page) == a);
  CHECK(c->index.find(page + kPage) == b);
  CHECK(c->index.find(page + 2 * kPage) == d);
  c->index.remove(b);
  CHECK(c->index.find(page) == a);
  CHECK(c->index.find(page + 2 * kPage) == d);
}

TEST_CASE(
    "the last chunk of the addresses of 48 bits is known, what would end beyond is not taken") {
  auto c = std::make_unique<Chunks>();
  const uint64_t end = uint64_t{1} << 48;
  const Chunk* last = c->add(end - 3 * kPage, 3 * kPage);
  CHECK(c->index.find(end - 3 * kPage) == last);
  CHECK(c->index.find(end - 1) == last);
  CHECK(c->index.find(end - 3 * kPage - 1) == nullptr);
  Chunk* beyond = c->arena.take();
  beyond->address = end - kPage;
  beyond->bytes = 2 * kPage;
  CHECK_FALSE(c->index.insert(beyond));
}

TEST_CASE("addresses beyond 48 bits are nobody's") {
  auto c = std::make_unique<Chunks>();
  CHECK(c->index.find(~uint64_t{0}) == nullptr);
  CHECK(c->index.find(uint64_t{1} << 48) == nullptr);
}

TEST_CASE("all chunks of one owner leave together") {
  auto c = std::make_unique<Chunks>();
  c->add(kPage, 3 * kPage, 1);
  Chunk* stays = c->add(10 * kPage, 3 * kPage, 2);
  c->add(20 * kPage, 100, 1);
  int count = 0;
  for (Chunk* chunk = c->index.remove_all_of(1); chunk != nullptr; chunk = chunk->next) ++count;
  CHECK(count == 2);
  CHECK(c->index.find(2 * kPage) == nullptr);
  CHECK(c->index.find(20 * kPage) == nullptr);
  CHECK(c->index.find(12 * kPage) == stays);
}

TEST_CASE("the index agrees with an ordered map over a random life") {
  auto c = std::make_unique<Chunks>();
  std::mt19937_64 random(3);
  std::map<uint64_t, Chunk*> model;
  auto expected = [&](uint64_t address) -> Chunk* {
    auto it = model.upper_bound(address);
    if (it == model.begin()) return nullptr;
    --it;
    return it->second->contains(address) ? it->second : nullptr;
  };
  for (int i = 0; i < 5000; ++i) {
    const uint64_t slot = random() % 300;
    const uint64_t base = slot * 4 * kPage + 512 * (slot % 9);
    if (auto it = model.find(base); it != model.end()) {
      c->index.remove(it->second);
      c->arena.give_back(it->second);
      model.erase(it);
    } else {
      model[base] = c->add(base, 1 + random() % (3 * kPage));
    }
    const uint64_t probe = random() % (1200 * kPage);
    REQUIRE(c->index.find(probe) == expected(probe));
  }
}

}  // namespace index_test
