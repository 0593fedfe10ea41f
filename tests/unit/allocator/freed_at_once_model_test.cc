// SPDX-License-Identifier: Apache-2.0
// Random programs against a plain model of when freed memory may be handed out: no two live blocks
// overlap, none lies on memory that earlier work or a graph may still use, and in the end every
// byte goes back to the driver. Every strategy, rule, fill and garbage setting, with and without a
// plan.
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/unit/allocator/chunk_pool.h"

namespace freed_at_once_model_test {

using namespace cistern::alloc;
using namespace cistern::test;
using When = GarbageRules::When;

namespace {

constexpr Ticket kNothingPending = 0;
constexpr uint64_t kMostParked = 56 * kMiB;

struct Setting {
  StrategyKind kind;
  ReuseRule rule;
  FillMode fill;
  When garbage;
  bool planned;
  uint64_t capacity;
  bool clean_goes;  // the source takes clean memory alone
};

// What was freed: when, and with what mark before.
struct Past {
  uint64_t end, time;
  Mark mark;
  bool passed, exported;
  std::vector<int> graphs;
};

class Program {
 public:
  Program(const Setting& setting, unsigned seed)
      : setting_(setting),
        random_(seed),
        p_(std::make_unique<Pool>(setting.capacity, sizes_of(setting.kind),
                                  GarbageRules{setting.garbage, 2 * kMiB, 1}, setting.fill)) {
    if (!runs_short()) p_->source.passed_mark = 0;  // else each passes at once: nothing waits long
    p_->source.patience = 1000;
    p_->source.may_take_clean = setting.clean_goes;
    p_->reuse = setting.rule;
    if (setting.planned) {
      make_plan();
      p_->set_plan(&plan_);
    } else {
      p_->init();
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      if (i % 16 == 0) count();
    }
    end();
  }
  uint64_t served() const { return p_->ledger.plan_served.get(); }

 private:
  static ChunkSizes sizes_of(StrategyKind kind) {
    if (kind == StrategyKind::on_demand) return {};
    return sizes(kind, 4 * kMiB, 4 * kMiB);
  }
  uint64_t below(uint64_t n) { return random_() % n; }
  uint64_t some_bytes() {
    static constexpr uint64_t kUsual[] = {512, 500, 1024, 4096, 4000, 65536, kMiB, 3 * kMiB};
    if (below(4) != 0) return kUsual[below(8)];
    return 1 + below(below(2) != 0 ? 8192 : kMiB);
  }

  // What is parked only waits then.
  bool runs_short() const { return setting_.capacity < 1024 * kMiB; }

  void make_plan() {
    const uint64_t count = 8 + below(24);
    for (uint64_t i = 0; i < count; ++i) {
      plan::PlannedRequest request{};
      request.bytes = some_bytes();
      request.offset = below(3) == 0 ? 0 : below(8) * 65536 + below(4) * 512;
      request.outside = i != 0 && below(8) == 0;
      requests_.push_back(request);
    }
    plan::PlanHead head{};
    head.period = plan::Period::iteration;
    head.requests = count;
    head.bytes = 5 * kMiB + 512;
    head.alignment = 512;
    plan_ = {head, requests_.data()};
  }

  void step() {
    switch (below(24)) {
      default:
        return allocate();
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 17:
        return free();
      case 18:
        return below(3) == 0 ? synchronise() : pair();
      case 19:
        return pair();
      case 20:
        p_->pool.before_submission(below(2) != 0);
        return pass_some();
      case 21:
        return below(4) == 0 ? change_graphs() : pass_some();
      case 22:
        return extra();
      case 23:
        return tickets();
    }
  }

  void pass_some() {
    Mark& passed = p_->source.passed_mark;
    if (passed != ~Mark{0} && passed < p_->source.last_mark)
      passed += 1 + below(p_->source.last_mark - passed);
    if (below(2) != 0) p_->shared.reclaim.poll(0);
  }

  void pair() {
    const uint64_t bytes = some_bytes();
    for (int i = 0; i < 3; ++i) {
      const uint64_t a = serve(bytes, 0, false);
      if (a != 0 && below(4) != 0) free_at(live_.find(a));
    }
  }

  // `asks`: whether the plan sees the request.
  uint64_t serve(uint64_t bytes, unsigned shard, bool asks) {
    uint64_t a = 0;
    if (asks) a = p_->allocate_planned(bytes);
    if (a == 0) a = p_->allocate(bytes, shard);
    if (a != 0) take(a, bytes);
    return a;
  }

  void allocate() {
    if (live_.size() > 200) return free();
    const unsigned shard =
        setting_.kind == StrategyKind::thread_local_ ? static_cast<unsigned>(below(4)) : 0;
    uint64_t bytes = some_bytes();
    const bool planned = setting_.planned && below(8) != 0;
    if (planned) {
      bytes = requests_[at_].bytes;
      at_ = (at_ + 1) % requests_.size();
    }
    serve(bytes, shard, setting_.planned && (planned || below(64) == 0));
  }

  void take(uint64_t a, uint64_t bytes) {
    const uint64_t end = a + bytes;
    auto next = live_.lower_bound(a);
    INFO("block " << a << " of " << bytes);
    if (next != live_.end()) REQUIRE(next->first >= end);
    if (next != live_.begin()) REQUIRE(std::prev(next)->second.end <= a);
    auto past = past_.lower_bound(a);
    if (past != past_.begin() && std::prev(past)->second.end > a) --past;
    while (past != past_.end() && past->first < end) {
      const uint64_t start = past->first;
      const Past was = past->second;
      INFO("freed at " << was.time << ", mark " << was.mark << ", graphs " << was.graphs.size()
                       << (was.exported ? ", exported" : "") << "; synchronised " << synchronised_
                       << ", mark passed " << p_->source.passed_mark);
      REQUIRE(may_be_reused(was));
      past = past_.erase(past);
      if (start < a) {
        Past part = was;
        part.end = a;
        past_[start] = part;
      }
      if (was.end > end) past = past_.emplace(end, was).first;
    }
    live_[a] = {end, ++time_, 0, false, false, {}};
  }

  bool may_be_reused(const Past& was) const {
    if (was.exported) return false;
    for (const int graph : was.graphs) {
      const auto gone = graphs_gone_.find(graph);
      if (gone == graphs_gone_.end()) return false;
    }
    return was.passed || synchronised_ >= was.time ||
           std::min(p_->source.passed_mark, p_->source.last_mark) > was.mark;
  }

  void free() {
    if (live_.empty()) return;
    auto one = live_.begin();
    std::advance(one, below(live_.size()));
    free_at(one);
  }

  void free_at(std::map<uint64_t, Past>::iterator one) {
    const uint64_t address = one->first;
    Past was = one->second;
    const uint64_t born = was.time;
    was.time = ++time_;
    was.mark = p_->source.last_mark;
    Ticket latest = Reclaim::kNow;
    if (const uint64_t how = below(8); how < 4) {
      latest = kNothingPending;
      was.passed = true;
    } else if (how < 6 && !tickets_.empty()) {
      const Closed& closed = tickets_[below(tickets_.size())];
      latest = closed.ticket;
      was.time = closed.time;
      was.mark = closed.mark;
    }
    for (const auto& graph : graphs_) {
      if (born < graph.time && !runs_short()) was.graphs.push_back(graph.number);
    }
    if (p_->pool.usage().parked > kMostParked) {  // too much: the oldest only waits
      for (auto& [start, past] : past_) past.graphs.clear();
      was.graphs.clear();
    }
    // Above the idle budget a whole chunk only waits, too.
    if (p_->shared.index.find(address)->is() == Role::whole) was.graphs.clear();
    live_.erase(one);
    REQUIRE(p_->free(address, latest) == Freed::done);
    if (p_->shared.index.find(address) == nullptr) return;  // went back to the driver
    REQUIRE(p_->free(address, latest) != Freed::done);
    auto& stays = past_[address];
    stays = was;
  }

  struct Closed {
    Ticket ticket;
    uint64_t time;
    Mark mark;
  };
  void tickets() {
    if (tickets_.size() < 4) {
      const uint64_t time = ++time_;
      const Mark mark = p_->source.last_mark;
      tickets_.push_back({p_->shared.reclaim.close(), time, mark});
      return;
    }
    const Closed closed = tickets_[below(tickets_.size())];
    p_->shared.reclaim.passed(0, closed.ticket);
    synchronised_ = std::max(synchronised_, closed.time);
    if (below(2) != 0) tickets_.clear();
  }
  void synchronise() {
    p_->pool.before_synchronise();
    synchronised_ = ++time_;
    p_->synchronise();
    if (below(2) != 0) p_->pool.release_excess();
  }

  struct Graph {
    int number;
    uint64_t time;
    std::unique_ptr<GraphLife> life;
  };
  void change_graphs() {
    Reclaim& reclaim = p_->shared.reclaim;
    if (graphs_.size() < 2) {
      graphs_.push_back({++graph_numbers_, ++time_, std::make_unique<GraphLife>()});
      reclaim.graphs().hold(graphs_.back().life.get(), 0, reclaim.open());
      return;
    }
    drop(below(graphs_.size()));
  }
  void drop(uint64_t n) {
    auto one = graphs_.begin();
    std::advance(one, n);
    Reclaim& reclaim = p_->shared.reclaim;
    reclaim.graphs().release(one->life.get(), reclaim.open());
    graphs_gone_[one->number] = ++time_;
    gone_lives_.push_back(std::move(one->life));
    graphs_.erase(one);
  }

  void extra() {
    switch (below(10)) {
      case 0:
        p_->pool.release_clean();
        break;
      case 1:
        p_->pool.release_returnable(0);
        for (auto& [address, was] : past_) was.graphs.clear();  // only waits from now on
        break;
      case 2:
        virtual_ms += 200;
        p_->pool.release_excess();
        break;
      case 3:
        virtual_ms += 1500;
        p_->pool.work_in_background();
        break;
      case 4:
        p_->pool.work_in_background();
        break;
      case 5:
        p_->pool.returnable_bytes();
        break;
      case 6:
        if (!live_.empty()) export_one();
        break;
      case 7: {
        uint64_t a = 0;
        const uint64_t bytes = some_bytes();
        if (p_->pool.allocate_at_last(bytes, 0, &a) == kSuccess) take(a, bytes);
        break;
      }
      case 8: {
        uint64_t a = 0;
        const uint64_t bytes = some_bytes();
        if (p_->pool.allocate_clean(bytes, 0, &a) == kSuccess) take(a, bytes);
        break;
      }
      case 9:
        p_->pool.largest_free();
        break;
    }
  }
  void export_one() {
    if (below(4) != 0) return;
    auto one = live_.begin();
    std::advance(one, below(live_.size()));
    Chunk* chunk = p_->shared.index.find(one->first);
    if (p_->pool.mark_exported(chunk, one->first)) one->second.exported = true;
  }

  void count() {
    const Usage usage = p_->pool.usage();
    uint64_t live = 0;
    for (const auto& [address, block] : live_) live += block.end - address;
    CHECK(usage.live == live);
    const uint64_t rest =
        usage.idle + usage.waiting + usage.parked + usage.garbage + usage.quarantined;
    CHECK(live + rest <= p_->source.held());
    CHECK(p_->pool.largest_free() <= usage.idle);
  }

  void end() {
    while (!live_.empty()) free_at(live_.begin());
    while (!graphs_.empty()) drop(0);
    p_->source.passed_mark = ~Mark{0};
    for (int i = 0; i < 2; ++i) synchronise();
    p_->pool.release_freed();
    p_->pool.release_freed();
    const Usage usage = p_->pool.usage();
    CHECK(usage.live == 0);
    CHECK(usage.waiting == 0);
    CHECK(usage.parked == 0);
    CHECK(usage.garbage == 0);
    CHECK(usage.quarantined == 0);
    CHECK(usage.idle == 0);
    CHECK(p_->source.held() == 0);
    CHECK(p_->ledger.live.get() + static_cast<uint64_t>(p_->pool.unpublished_live()) == 0);
    CHECK(p_->ledger.reserved.get() == 0);
    CHECK(p_->pool.returnable_bytes() == 0);
    CHECK(p_->pool.largest_free() == 0);
  }

  Setting setting_;
  std::minstd_rand random_;
  std::unique_ptr<Pool> p_;
  std::vector<plan::PlannedRequest> requests_;
  plan::Plan plan_;
  size_t at_ = 0;
  std::map<uint64_t, Past> live_, past_;  // by address
  std::vector<Closed> tickets_;
  std::list<Graph> graphs_;
  std::list<std::unique_ptr<GraphLife>> gone_lives_;
  std::map<int, uint64_t> graphs_gone_;
  int graph_numbers_ = 0;
  uint64_t time_ = 0, synchronised_ = 0;
};

}  // namespace

TEST_CASE("random programs never get memory that is in use", "[freed_last][freed_model]") {
  constexpr StrategyKind kKinds[] = {StrategyKind::on_demand, StrategyKind::legacy,
                                     StrategyKind::naive_best_fit, StrategyKind::auto_growth,
                                     StrategyKind::thread_local_};
  constexpr ReuseRule kRules[] = {ReuseRule::about, ReuseRule::same_size, ReuseRule::any_that_fits};
  constexpr FillMode kFills[] = {FillMode::off, FillMode::off, FillMode::separate,
                                 FillMode::gathered};
  constexpr When kGarbage[] = {When::off,          When::off,          When::off,
                               When::at_each_free, When::at_threshold, When::at_synchronise};
  constexpr unsigned kSeeds = 300;
  uint64_t served = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed * 7919);
    random.discard(3);
    Setting setting{
        kKinds[random() % 5], random() % 2 == 0 ? ReuseRule::about : kRules[random() % 3],
        kFills[random() % 4], kGarbage[random() % 6],
        random() % 2 == 0,    random() % 2 == 0 ? uint64_t{1} << 40 : (12 + random() % 24) * kMiB,
        random() % 2 == 0};
    CAPTURE(static_cast<int>(setting.kind), static_cast<int>(setting.rule),
            static_cast<int>(setting.fill), static_cast<int>(setting.garbage), setting.planned,
            setting.capacity, setting.clean_goes);
    Program program(setting, seed);
    program.run(1500);
    served += program.served();
  }
  CHECK(served > kSeeds);
}

}  // namespace freed_at_once_model_test
