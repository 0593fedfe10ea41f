// SPDX-License-Identifier: Apache-2.0
// A device without a device, for unit tests: addresses are numbers, memory has a size, events pass
// when the test says so, every call can be made to fail. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "allocator/context_pool.h"
#include "config/load.h"
#include "tests/unit/allocator/fake_units.h"

namespace cistern::test {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// The time that pools of tests live by.
inline uint64_t virtual_ms = 1000;
inline uint64_t virtual_clock() { return virtual_ms * 1'000'000; }

class FakeSource : public alloc::MemorySource {
 public:
  explicit FakeSource(uint64_t capacity = uint64_t{1} << 40, uint64_t first = uint64_t{1} << 32)
      : free_(capacity), next_(first) {}

  // The driver's own rounding: whole pages for large requests.
  static uint64_t charged(uint64_t bytes) {
    const uint64_t page = alloc::kDriverPage;
    return bytes < alloc::kWholeBytes ? 512 * ((bytes + 511) / 512)
                                      : (bytes + page - 1) / page * page;
  }

  // Where a test put some.
  alloc::UnitSource* units() override { return fake_units.get(); }
  std::unique_ptr<FakeUnits> fake_units;

  int obtain(uint64_t bytes, uint64_t* address) override {
    std::lock_guard guard(mutex_);
    ++obtained;
    asked.push_back(bytes);
    if (on_obtain) on_obtain();
    if (fail_obtain != 0) return fail_obtain;
    if (charged(bytes) > free_) return alloc::kOutOfMemory;
    free_ -= charged(bytes);
    *address = next_;
    next_ += (bytes + (2 << 20)) & ~uint64_t{511};
    sizes_[*address] = bytes;
    return alloc::kSuccess;
  }

  int release_for_program(uint64_t address, const alloc::OrderedFree* ordered) override {
    if (ordered == nullptr) return give_back(address, &free_);
    const int code = ordered->free(address);
    return code == alloc::kSuccess ? give_back(address, &free_) : code;
  }

  int release(uint64_t address) override {
    return capturing ? alloc::kNotNow : give_back(address, &free_);
  }

  bool request_background_work(bool soon) override {
    ++asked_to_attend;
    rung += soon ? 1 : 0;
    return attends;
  }

  bool refuses_release() override {
    if (const auto meanwhile = std::exchange(on_refuses_release, nullptr)) meanwhile();
    return capturing;
  }

  bool can_release_clean() override { return may_take_clean; }
  bool pays_what_it_owes(bool waits) override { return waits || !owes; }
  bool owes = false;
  int release_clean(uint64_t address, uint64_t) override {
    ++taken_clean;
    if (capturing) return alloc::kNotNow;
    return give_back(address, gives_late ? &late_ : &free_);
  }
  bool unsettled() override {
    std::lock_guard guard(mutex_);
    return late_ != 0;
  }
  bool settle_clean_releases() override {
    std::lock_guard guard(mutex_);
    free_ += late_;
    return std::exchange(late_, 0) != 0;
  }

  int fill(const alloc::FillRange* ranges, int count) override {
    if (capturing) return alloc::kNotNow;
    if (fail_fill != 0) return fail_fill;
    {
      std::lock_guard guard(mutex_);
      ++fill_calls;
      filled.insert(filled.end(), ranges, ranges + count);
    }
    for (int i = 0; on_fill && i < count; ++i) on_fill(ranges[i]);
    return alloc::kSuccess;
  }

  bool mark(alloc::Mark* out) override {
    std::lock_guard guard(mutex_);
    if (capturing || lost) return false;
    *out = ++last_mark;
    return true;
  }
  bool marks_may_come() override { return !lost; }

  alloc::MarkState query(alloc::Mark mark) override {
    std::lock_guard guard(mutex_);
    if (pass_after_queries > 0 && --pass_after_queries == 0) passed_mark = ~alloc::Mark{0};
    if (fail_query) return alloc::MarkState::failed;
    return mark <= passed_mark ? alloc::MarkState::passed : alloc::MarkState::pending;
  }

  void forget(alloc::Mark) override {}
  uint64_t patience_ns() override { return patience; }

  uint64_t memory_bytes() override { return told_memory; }
  uint64_t told_memory = 0;  // not known

  // Runs of graphs: all but these have ended.
  bool graph_is_open(uint32_t run) override {
    if (const auto meanwhile = std::exchange(on_graph_is_open, nullptr)) meanwhile();
    std::lock_guard guard(mutex_);
    return open_graphs.count(run) != 0;
  }
  void begin_graph(uint32_t run) {
    std::lock_guard guard(mutex_);
    open_graphs.insert(run);
  }
  void end_graph(uint32_t run) {
    std::lock_guard guard(mutex_);
    open_graphs.erase(run);
  }
  void graphs_overlap() override { ++overlaps; }
  std::set<uint32_t> open_graphs;
  std::function<void()> on_graph_is_open;  // once
  std::atomic<int> overlaps{0};

  void shortage_ended(alloc::Step step, uint64_t) override {
    std::lock_guard guard(mutex_);
    ended = step;
  }

  uint64_t held() {
    std::lock_guard guard(mutex_);
    uint64_t bytes = 0;
    for (const auto& [address, size] : sizes_) bytes += size;
    return bytes;
  }

  std::atomic<int> fail_obtain{0}, fail_release{0}, fail_fill{0};
  std::atomic<bool> capturing{false}, fail_query{false}, may_take_clean{false};
  bool gives_late = false;        // what it took clean is there once no work goes on
  std::atomic<bool> lost{false};  // there is work that no mark covers
  std::atomic<uint64_t> patience{100'000'000};
  std::atomic<int> taken_clean{0};
  std::atomic<bool> attends{true};
  std::atomic<int> asked_to_attend{0}, rung{0};  // rung: to do so soon
  int obtained = 0, released = 0;
  std::vector<uint64_t> asked;  // sizes of all obtain calls, refused ones too
  std::optional<alloc::Step> ended;
  std::function<void()> on_obtain;
  std::function<void()> on_refuses_release;  // once: what another thread does just then
  int fill_calls = 0;
  std::vector<alloc::FillRange> filled;
  std::function<void(const alloc::FillRange&)> on_fill;
  int pass_after_queries = 0;
  alloc::Mark last_mark = 0;
  alloc::Mark passed_mark = ~alloc::Mark{0};  // all of them, at once

 private:
  int give_back(uint64_t address, uint64_t* bytes) {
    std::lock_guard guard(mutex_);
    ++released;
    if (fail_release != 0) return fail_release;
    const auto found = sizes_.find(address);
    if (found == sizes_.end()) return 1;
    *bytes += charged(found->second);
    sizes_.erase(found);
    return alloc::kSuccess;
  }

  std::mutex mutex_;
  uint64_t free_, late_ = 0;
  uint64_t next_;
  std::map<uint64_t, uint64_t> sizes_;
};

// One context's pool with all it needs. Large: keep it in static storage or on the heap.
struct Pool {
  explicit Pool(uint64_t capacity = uint64_t{1} << 40, const alloc::ChunkSizes& chunk_sizes = {},
                const alloc::GarbageRules& rules = {},
                alloc::FillMode fill_mode = alloc::FillMode::off)
      : source(capacity), sizes(chunk_sizes), fill(fill_mode) {
    set_idle_release(config::default_policy());
    garbage.init(rules, &shared.reclaim);
    shared.reclaim.join(0, &source);
    init();
  }

  void init() {
    const alloc::DeviceParts parts{.ledger = &ledger,
                                   .cap = &cap,
                                   .garbage = garbage.on() ? &garbage : nullptr,
                                   .fill = fill,
                                   .reuse = reuse,
                                   .plan = plan,
                                   .plans = plans};
    pool.init(&shared, &source, parts, 0, sizes, groups);
  }

  // What the policy says of idle memory; init() comes after it.
  void set_idle_release(const config::Policy& policy) {
    shared.idle = alloc::idle_release(policy);
    shared.idle.clock = virtual_clock;
  }

  // What is in use from here on is all that was in use within the last second.
  void pass_a_second() {
    virtual_ms += 200;
    pool.release_excess();
    virtual_ms += 1001;
  }

  // The same pool anew, with a plan, or with nullptr one that makes plans by itself.
  void set_plan(const alloc::plan::Plan* given) {
    plan = given == nullptr ? std::span<const alloc::plan::Plan>() : std::span(given, 1);
    plans = given == nullptr;
    init();
  }
  // The same with plans of several threads.
  void set_plans(std::span<const alloc::plan::Plan> given) {
    plan = given;
    init();
  }

  // At its place in the plan, or 0.
  uint64_t allocate_planned(uint64_t bytes, unsigned thread = 0, uint32_t phase = 0) {
    uint64_t address = 0;
    return pool.allocate_planned(bytes, thread, phase, &address) ? address : 0;
  }

  // The same pool anew, under another rule; only where nothing was allocated yet.
  void set_rule(alloc::ReuseRule rule) {
    reuse = rule;
    init();
  }

  // The address, or 0 with `code` set.
  uint64_t allocate(uint64_t bytes, unsigned shard = 0) {
    uint64_t address = 0;
    code = pool.allocate(bytes, shard, &address);
    return code == alloc::kSuccess ? address : 0;
  }

  // `latest`: the ticket of a synchronisation that covers all that was done with the block.
  alloc::Freed free(uint64_t address, alloc::Ticket latest = alloc::Reclaim::kNow) {
    alloc::Chunk* chunk = shared.index.find(address);
    if (chunk == nullptr) return alloc::Freed::foreign;
    return pool.free(chunk, address, &code, latest);
  }

  // The same pool anew, with groups; only where nothing was allocated yet.
  void set_groups(uint64_t members, uint64_t bytes) {
    groups = {.on = true, .members = members, .bytes = bytes};
    init();
  }
  uint64_t allocate_in_group(uint64_t bytes, uint32_t site, unsigned thread = 0,
                             alloc::GraphRun graph = {}) {
    uint64_t address = 0;
    code = pool.allocate_in_group(bytes, 0, {thread, site}, graph, &address);
    return code == alloc::kSuccess ? address : 0;
  }

  // Of a run that is a graph with this name.
  uint64_t allocate_in_graph(uint64_t bytes, uint32_t run, uint32_t name) {
    uint64_t address = 0;
    code = pool.allocate_in_graph(bytes, 0, {run, name}, &address);
    return code == alloc::kSuccess ? address : 0;
  }

  // For a request that is to be kept out of the pool; 0 with `code` set.
  uint64_t allocate_unpooled(uint64_t bytes) {
    uint64_t address = 0;
    code = pool.allocate_unpooled(bytes, 0, &address);
    return code == alloc::kSuccess ? address : 0;
  }

  // As the program's own device synchronisation does it.
  alloc::Ticket synchronise() {
    const alloc::Ticket ticket = shared.reclaim.close();
    shared.reclaim.passed(0, ticket);
    pool.synchronised(ticket);
    return ticket;
  }

  alloc::Shared shared{};
  alloc::Ledger ledger{};
  alloc::Cap cap{};
  alloc::Garbage garbage{};
  FakeSource source;
  alloc::ChunkSizes sizes;
  alloc::FillMode fill;
  alloc::GroupRules groups;
  std::span<const alloc::plan::Plan> plan;
  bool plans = false;
  alloc::ReuseRule reuse = alloc::ReuseRule::about;
  alloc::ContextPool pool{};
  int code = 0;
};

// Nothing passes before the test lets it.
inline std::unique_ptr<Pool> busy_pool(uint64_t capacity = uint64_t{1} << 40) {
  auto p = std::make_unique<Pool>(capacity);
  p->source.passed_mark = 0;
  return p;
}

}  // namespace cistern::test
