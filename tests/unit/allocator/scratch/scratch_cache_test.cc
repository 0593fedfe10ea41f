// SPDX-License-Identifier: Apache-2.0
// The scratch cache as bookkeeping: which block serves what, when it is full, what goes back.
#include "allocator/scratch/scratch_cache.h"

#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace cistern::test::scratch_cache_test {
namespace {

using alloc::Ledger;
using alloc::Reclaim;
using alloc::ScratchBlock;
using alloc::ScratchCache;
using alloc::ScratchList;
using alloc::Ticket;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kStream = 7, kOther = 8, kAbroad = 9;  // the last one is of another context
using Freed = ScratchCache::Freed;
using Took = ScratchCache::Took;
using Released = ScratchCache::Released;

// A cache with three streams, and a driver whose addresses are numbers.
class Scratch {
 public:
  explicit Scratch(uint64_t limit = ScratchCache::kUnlimited, double times = 2,
                   bool only_clean = false)
      : cache_(std::make_unique<ScratchCache>()) {
    reclaim.join(0, &source);
    reclaim.join(1, &source);
    cache_->init(limit, times, only_clean, &reclaim);
    cache_->add_stream(kStream, 0x70, 0, 0, &ledger);
    cache_->add_stream(kOther, 0x80, 0, 0, &ledger);
    cache_->add_stream(kAbroad, 0x90, 1, 1, &ledger);
  }

  ScratchCache* operator->() { return cache_.get(); }

  // From the driver.
  uint64_t fresh(uint64_t bytes, uint64_t key = kStream) {
    const uint64_t address = next_ += uint64_t{1} << 32;
    cache_->add(address, bytes, key, cache_->epoch());
    return address;
  }

  Freed free(uint64_t address, uint64_t key = kStream) {
    ScratchBlock* block = nullptr;
    ScratchList over;
    const Freed freed = cache_->free(address, key, &block, &over);
    returned = give_back(over, Released::done);
    if (freed == Freed::pass) cache_->freed(block, !refuse);
    return freed;
  }

  // 0 if the cache has none.
  uint64_t take(uint64_t bytes, uint64_t key = kStream) {
    uint64_t address = 0;
    return cache_->take(key, bytes, &address, &wait_for) == Took::hit ? address : 0;
  }

  std::set<uint64_t> give_back(ScratchList blocks, Released outcome) {
    std::set<uint64_t> addresses;
    while (ScratchBlock* block = blocks.pop()) {
      addresses.insert(block->address());
      cache_->released(block, outcome);
    }
    return addresses;
  }

  Ledger ledger{};
  Reclaim reclaim{};
  FakeSource source;
  std::set<uint64_t> returned;  // by the last free
  bool refuse = false;          // the driver, of frees that are passed on
  Ticket wait_for = 0;

 private:
  std::unique_ptr<ScratchCache> cache_;
  uint64_t next_ = 0;
};

using Addresses = std::set<uint64_t>;

}  // namespace

TEST_CASE("a scratch block of S serves N where N <= S <= times * N") {
  struct Row {
    double times;
    uint64_t cached, wanted;
    bool served;
  };
  const Row rows[] = {
      {2, 1000, 1000, true},   {2, 1000, 1001, false},   {2, 1000, 500, true},
      {2, 1000, 499, false},   {1, 1000, 1000, true},    {1, 1000, 999, false},
      {1.5, 1500, 1000, true}, {1.5, 1501, 1000, false}, {1e300, uint64_t{1} << 40, 1, true},
  };
  for (const Row& row : rows) {
    INFO(row.times << " " << row.cached << " " << row.wanted);
    Scratch cache(ScratchCache::kUnlimited, row.times);
    const uint64_t block = cache.fresh(row.cached);
    REQUIRE(cache.free(block) == Freed::cached);
    CHECK(cache.take(row.wanted) == (row.served ? block : 0));
  }
}

TEST_CASE("the smallest scratch block that fits is taken, whole") {
  Scratch cache;
  const uint64_t large = cache.fresh(1900), small = cache.fresh(1100), middle = cache.fresh(1500);
  for (const uint64_t block : {large, small, middle}) cache.free(block);
  CHECK(cache.take(1000) == small);
  CHECK(cache.take(1000) == middle);
  CHECK(cache.take(1000) == large);
  CHECK(cache.take(1000) == 0);
}

TEST_CASE("scratch blocks stay on the stream on which they were freed") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000, kStream);
  CHECK(cache.free(block, kOther) == Freed::cached);
  CHECK(cache.take(1000, kStream) == 0);
  CHECK(cache.take(1000, kOther) == block);
}

TEST_CASE("the driver gets a scratch block that is freed on a stream of another context") {
  Scratch cache;
  CHECK(cache.free(cache.fresh(1000), kAbroad) == Freed::pass);
}

TEST_CASE("a full scratch cache goes back whole, and the block that did not fit as well") {
  Scratch cache(/*limit=*/3000);
  const uint64_t a = cache.fresh(1000), b = cache.fresh(2000), c = cache.fresh(1);
  const uint64_t elsewhere = cache.fresh(3000);
  CHECK(cache.free(elsewhere, kOther) == Freed::cached);  // each stream has the limit to itself
  CHECK(cache.free(a) == Freed::cached);
  CHECK(cache.free(b) == Freed::cached);
  CHECK(cache.ledger.scratch_bytes.get() == 6000);
  CHECK(cache.free(c) == Freed::pass);
  CHECK(cache.returned == Addresses{a, b});
  CHECK(cache.ledger.scratch_bytes.get() == 3000);
  CHECK(cache.ledger.scratch_released.get() == 2);
  CHECK(cache.free(cache.fresh(3000)) == Freed::cached);
}

TEST_CASE("a scratch limit of 0 caches nothing") {
  Scratch cache(/*limit=*/0);
  CHECK(cache.free(cache.fresh(1)) == Freed::pass);
  CHECK(cache.take(1) == 0);
}

TEST_CASE("a scratch block is told with the size that was asked for") {
  Scratch cache;
  const uint64_t block = cache.fresh(2000);
  uint64_t bytes = 0;
  CHECK(cache->find(block, &bytes) == ScratchCache::Found::live);
  CHECK(bytes == 2000);
  cache.free(block);
  CHECK(cache->find(block, &bytes) == ScratchCache::Found::not_live);
  REQUIRE(cache.take(1100) == block);
  CHECK(cache->find(block, &bytes) == ScratchCache::Found::live);
  CHECK(bytes == 1100);
  CHECK(cache->find(block + 1, &bytes) == ScratchCache::Found::foreign);
  cache.free(block);
  CHECK(cache.take(2000) == block);  // cached with its real size again
}

TEST_CASE("a cached scratch block freed again is invalid, an unknown address foreign") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  CHECK(cache.free(block) == Freed::cached);
  CHECK(cache.free(block) == Freed::invalid);
  CHECK(cache.free(block, kOther) == Freed::invalid);
  CHECK(cache.free(block, 0) == Freed::invalid);
  CHECK(cache.free(block + 512) == Freed::foreign);
}

TEST_CASE("a scratch block is still held after the driver refused its free") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  cache.refuse = true;
  CHECK(cache.free(block, 0) == Freed::pass);
  cache.refuse = false;
  CHECK(cache.free(block, 0) == Freed::pass);
  CHECK(cache.free(block, 0) == Freed::foreign);
}

TEST_CASE("an exported scratch block is not cached any more") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  cache->mark_exported(block);
  CHECK(cache.free(block) == Freed::pass);
}

TEST_CASE("another current pool: nothing from before is cached or served") {
  Scratch cache;
  const uint64_t held = cache.fresh(1000), cached = cache.fresh(1000);
  const uint64_t abroad = cache.fresh(1000, kAbroad);
  cache.free(cached);
  const uint32_t before = cache->epoch();
  cache->stop_serving_device(0);
  CHECK(cache.take(1000) == 0);
  CHECK(cache.free(held) == Freed::pass);
  CHECK(cache.give_back(cache->collect_device(0), Released::not_now) == Addresses{cached});
  CHECK(cache.take(1000) == 0);  // also when the driver would not have it just now
  CHECK(cache.give_back(cache->collect_device(0), Released::done) == Addresses{cached});
  CHECK(cache.free(abroad, kAbroad) == Freed::cached);
  // An allocation that was under way when the pool changed.
  cache->add(42, 1000, kStream, before);
  CHECK(cache.free(42) == Freed::pass);
  CHECK(cache.free(cache.fresh(1000)) == Freed::cached);
}

TEST_CASE("what a stream leaves goes back after the next synchronisation of its context") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  cache.free(block);
  CHECK(cache.give_back(cache->collect_stream(kStream), Released::not_now) == Addresses{block});
  const Ticket before = cache.reclaim.close();
  cache->end_stream(kStream);
  const Ticket after = cache.reclaim.close();
  CHECK(cache->collect_ended(0, 0, before).empty());  // began before the stream ended
  CHECK(cache->collect_device(0).empty());
  CHECK(cache.free(block, 0) == Freed::invalid);
  CHECK(cache.give_back(cache->collect_ended(0, 0, after), Released::done) == Addresses{block});
  CHECK(cache.ledger.scratch_bytes.get() == 0);
  CHECK(cache->collect_ended(0, 0, after).empty());
}

TEST_CASE("a stream that turns out to have gone serves nothing") {
  Scratch cache;
  const uint64_t a = cache.fresh(1000), b = cache.fresh(1000);
  cache.free(a);
  cache.free(b);
  CHECK(cache.give_back(cache->collect_device(0), Released::stream_gone) == Addresses{a, b});
  CHECK(cache.take(1000) == 0);
  const Ticket after = cache.reclaim.close();
  CHECK(cache.give_back(cache->collect_ended(0, 0, after), Released::done) == Addresses{a, b});
}

TEST_CASE("with a context go its scratch streams, and what the program holds is its own") {
  Scratch cache;
  const uint64_t held = cache.fresh(1000), cached = cache.fresh(1000);
  const uint64_t abroad = cache.fresh(1000, kAbroad);
  cache.free(cached);
  cache.free(abroad, kAbroad);
  cache->close(0);
  cache->close(0);  // two threads may be ending it
  cache->reopen(0);
  CHECK(cache->collect_device(0).empty());
  cache->reopen(0);
  CHECK(cache.give_back(cache->collect_context(0), Released::not_now) == Addresses{cached});
  cache->close(0);
  cache->forget_context(0);
  CHECK(cache.free(held, 0) == Freed::foreign);
  uint64_t address;
  CHECK(cache->take(kStream, 1000, &address, &cache.wait_for) == Took::unknown_stream);
  CHECK(cache.take(1000, kAbroad) == abroad);
}

TEST_CASE("what is cached in a context that is gone goes back from another on its device") {
  Scratch cache;
  const uint64_t first = cache.fresh(1000), second = cache.fresh(2000, kOther);
  cache.free(first);
  cache.free(second, kOther);
  const Ticket before = cache.reclaim.close();
  cache->forget_context(0);
  CHECK(cache.free(first, 0) == Freed::invalid);
  CHECK(cache.ledger.scratch_bytes.get() == 3000);
  // The next context has its number, and the same key for its default stream.
  cache->add_stream(kStream, 0x70, 0, 0, &cache.ledger);
  CHECK(cache.take(1000) == 0);
  const uint64_t third = cache.fresh(500);
  CHECK(cache.free(third) == Freed::cached);
  cache->forget_context(0);
  CHECK(cache->collect_device(0).empty());
  const Ticket after = cache.reclaim.close();
  CHECK(cache->collect_ended(1, 1, after).empty());  // another device's
  CHECK(cache->collect_ended(2, 0, before).empty());
  CHECK(cache.give_back(cache->collect_ended(2, 0, after), Released::not_now) ==
        Addresses{first, second, third});
  CHECK(cache.give_back(cache->collect_ended(2, 0, after), Released::done) ==
        Addresses{first, second, third});
  CHECK(cache.ledger.scratch_bytes.get() == 0);
  CHECK(cache.free(first, 0) == Freed::foreign);
}

TEST_CASE("an address the driver gives out anew is what it is now") {
  Scratch cache;
  const uint64_t cached = cache.fresh(1000), held = cache.fresh(1000), retired = cache.fresh(1000);
  cache.free(retired);
  cache->stop_serving_device(0);
  cache->add(cached, 1000, kStream, cache->epoch());
  cache.free(cached);
  cache->forget(held);
  CHECK(cache.free(held) == Freed::foreign);
  cache->add(cached, 700, kStream, cache->epoch());
  CHECK(cache.take(1000) == 0);
  uint64_t bytes;
  CHECK(cache->find(cached, &bytes) == ScratchCache::Found::live);
  CHECK(bytes == 700);
  cache->forget(retired);
  CHECK(cache->collect_device(0).empty());
  CHECK(cache.ledger.scratch_bytes.get() == 0);
}

TEST_CASE("what the driver gave out anew takes no room in a limited scratch cache") {
  Scratch cache(/*limit=*/3000);
  const uint64_t served = cache.fresh(2000), retired = cache.fresh(1000);
  cache.free(served);
  if (GENERATE(true, false)) cache->stop_serving_device(0);
  cache.free(retired);
  cache->forget(served);
  cache->add(retired, 3000, kStream, cache->epoch());
  CHECK(cache.free(retired) == Freed::cached);
  CHECK(cache.returned.empty());
  CHECK(cache.ledger.scratch_bytes.get() == 3000);
  CHECK(cache.free(cache.fresh(1)) == Freed::pass);
  CHECK(cache.returned == Addresses{retired});
}

TEST_CASE("a scratch block that has to be clean is not served before") {
  Scratch cache(ScratchCache::kUnlimited, 2, /*only_clean=*/true);
  const uint64_t early = cache.fresh(1500), late = cache.fresh(1000);
  cache.free(early);
  const Ticket middle = cache.reclaim.close();
  cache.free(late);
  CHECK(cache.take(1000) == 0);
  CHECK(cache.wait_for == cache.reclaim.stamp(0));
  cache.reclaim.passed(0, middle);
  CHECK(cache.take(1000) == early);  // the smaller one is not clean yet
  CHECK(cache.wait_for == 0);        // and nobody waits for it, who would get both
  cache.reclaim.passed(0, cache.reclaim.close());
  CHECK(cache.take(1000) == late);
}

TEST_CASE("a new key is unknown until its stream is added") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  CHECK(cache.free(block, 1234) == Freed::unknown_stream);
  CHECK(cache->add_stream(1234, 0x12, 0, 0, &cache.ledger));
  CHECK(cache->add_stream(1234, 0x12, 0, 0, &cache.ledger));
  CHECK(cache.free(block, 1234) == Freed::cached);
}

TEST_CASE("random scratch traffic agrees with a sorted map") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Scratch cache;
  std::multimap<uint64_t, uint64_t> model;  // cached, by size
  std::vector<std::pair<uint64_t, uint64_t>> held;
  std::map<uint64_t, uint64_t> sizes;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = 1 + random() % 3000;
    if (random() % 2 == 0 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      const uint64_t block = held.back().first;
      held.pop_back();
      REQUIRE(cache.free(block) == Freed::cached);
      model.emplace(sizes[block], block);
      continue;
    }
    uint64_t block = cache.take(bytes);
    const auto best = model.lower_bound(bytes);
    if (best == model.end() || best->first > 2 * bytes) {
      REQUIRE(block == 0);
      block = cache.fresh(bytes);
      sizes[block] = bytes;
    } else {
      REQUIRE(block != 0);
      REQUIRE(sizes[block] == best->first);
      const auto [first, last] = model.equal_range(sizes[block]);
      for (auto at = first; at != last; ++at) {
        if (at->second == block) {
          model.erase(at);
          break;
        }
      }
    }
    held.emplace_back(block, bytes);
  }
  uint64_t cached = 0;
  for (const auto& [size, block] : model) cached += size;
  CHECK(cache.ledger.scratch_bytes.get() == cached);
}

TEST_CASE("threads share scratch streams, give back and end them") {
  Scratch cache(/*limit=*/64 * kKiB);
  std::atomic<uint64_t> next{uint64_t{1} << 40};
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint64_t> held;
    const auto free_one = [&] {
      ScratchBlock* block = nullptr;
      ScratchList over;
      const Freed freed = cache->free(held.back(), kStream + random() % 2, &block, &over);
      held.pop_back();
      if (freed == Freed::pass) cache->freed(block, true);
      if (freed != Freed::pass && freed != Freed::cached) ++wrong;
      cache.give_back(over, random() % 4 == 0 ? Released::not_now : Released::done);
    };
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t key = kStream + random() % 2, bytes = kKiB * (1 + random() % 8);
      uint64_t address;
      Ticket unused;
      if (cache->take(key, bytes, &address, &unused) != Took::hit) {
        address = next.fetch_add(4096);
        cache->add(address, bytes, key, cache->epoch());
      }
      held.push_back(address);
      while (held.size() > 8) free_one();
      if (random() % 512 == 0) cache.give_back(cache->collect_device(0), Released::done);
      // A stream of the thread's own comes, is used and goes.
      const uint64_t own = 1000 + seed;
      if (random() % 256 == 0) {
        cache->add_stream(own, own, 0, 0, &cache.ledger);
        ScratchBlock* block = nullptr;
        ScratchList over;
        if (cache->free(held.back(), own, &block, &over) != Freed::cached) ++wrong;
        held.pop_back();
        cache.give_back(cache->collect_stream(own), Released::done);
        cache->end_stream(own);
      }
    }
    while (!held.empty()) free_one();
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  cache.give_back(cache->collect_device(0), Released::done);
  CHECK(cache.ledger.scratch_bytes.get() == 0);
}

TEST_CASE("threads that close a context and reopen it at once leave it open") {
  Scratch cache;
  const uint64_t block = cache.fresh(1000);
  REQUIRE(cache.free(block) == Freed::cached);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        for (int n = 0; n < 500; ++n) cache->close(0);
        for (int n = 0; n < 500; ++n) cache->reopen(0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cache.give_back(cache->collect_context(0), Released::done) == Addresses{block});
}

}  // namespace cistern::test::scratch_cache_test
