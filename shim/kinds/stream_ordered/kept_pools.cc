// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/stream_ordered/memory_pools.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/shared.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

struct KeptPool {
  CUmemoryPool handle;  // this and the next five are guarded by the mutex
  CUdevice device;
  bool is_default;
  Whose whose;
  bool was_set;    // the program set its threshold
  uint64_t birth;  // tells this pool from a destroyed one with the same handle
  std::atomic<int> visitors;
  std::atomic<uint64_t> told;  // the threshold that we set in the driver
  // High-water marks of use that resets removed from the driver: those that our resets hid from the
  // program, and those that the program's resets hid from the next look.
  std::atomic<uint64_t> high_hidden_by_us, high_hidden_by_program;
  uint64_t before;  // peak use between the last two looks; one thread looks at a time
};

namespace {

constexpr int kMaxPools = 256;                  // more pools are left alone
constexpr uint64_t kLookNs = 500'000'000;       // between looks; two of these are "lately"
constexpr uint64_t kPauseNs = kLookNs / 4;      // between two rounds
constexpr uint64_t kStep = uint64_t{32} << 20;  // by which pools grow and shrink
constexpr CUmemPool_attribute kThreshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
constexpr CUmemPool_attribute kUsed = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
constexpr CUmemPool_attribute kUsedHigh = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
constexpr CUmemPool_attribute kReserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;

// For the report. Kept bytes: reserved and not in use at a look.
constinit std::atomic<uint64_t> adopted{0}, kept_peak{0}, trims{0}, trimmed_bytes{0};

constinit alloc::Mutex mutex;
constinit alloc::Mutex telling;  // held while a threshold is set and `told` is updated
constinit KeptPool pools[kMaxPools]{};
constinit uint64_t births = 0;  // guarded by the mutex
constinit std::atomic<int> pools_end{0};
constinit std::atomic<int> ours_count{0}, asleep{0};

// resting: thresholds are the driver's own. without: there is no background thread, so no threshold
// is raised.
enum class Tending : uint8_t { resting, tended, without };
constinit std::atomic<Tending> tending{Tending::resting};
constinit std::atomic<bool> allocated{false};  // since the last look
constinit std::atomic<CUdevice> looked_at{0};  // the default pools of devices below it are adopted

bool automatic() { return policy().mempool_threshold.value.mode == config::ThresholdMode::kAuto; }
uint64_t raised() { return automatic() ? UINT64_MAX : policy().mempool_threshold.value.bytes; }
uint64_t in_steps(uint64_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

// Caller holds the mutex.
KeptPool* find(CUmemoryPool handle) {
  for (KeptPool& pool : pools) {
    if (pool.whose != Whose::nobodys && pool.handle == handle) return &pool;
  }
  return nullptr;
}

// Caller holds the mutex.
void belongs(KeptPool& pool, Whose whose) {
  ours_count.fetch_add((whose == Whose::ours) - (pool.whose == Whose::ours));
  asleep.fetch_add((whose == Whose::asleep) - (pool.whose == Whose::asleep));
  pool.whose = whose;
}

// While it exists, an adopted pool is not destroyed and does not become the program's.
class PoolVisit {
 public:
  explicit PoolVisit(KeptPool* pool) {
    const alloc::LockGuard guard(mutex);
    if (pool != nullptr && pool->whose == Whose::ours) enter(*pool);
  }
  explicit PoolVisit(CUmemoryPool handle) {
    const alloc::LockGuard guard(mutex);
    KeptPool* pool = find(handle);
    if (pool != nullptr && pool->whose == Whose::ours) enter(*pool);
  }
  ~PoolVisit() {
    if (pool_ != nullptr) pool_->visitors.fetch_sub(1);
  }
  PoolVisit(const PoolVisit&) = delete;
  PoolVisit& operator=(const PoolVisit&) = delete;

  KeptPool* pool() const { return pool_; }
  bool on(CUdevice device) const {
    return pool_ != nullptr && (device == kNoDevice || device == pool_->device);
  }
  bool get(CUmemPool_attribute what, cuuint64_t* value) const {
    return driver().cuMemPoolGetAttribute(pool_->handle, what, value) == CUDA_SUCCESS;
  }
  bool set(CUmemPool_attribute what, cuuint64_t value) const {
    return driver().cuMemPoolSetAttribute(pool_->handle, what, &value) == CUDA_SUCCESS;
  }
  bool tell(uint64_t threshold) const {
    const alloc::LockGuard guard(telling);
    if (pool_->told.load() == threshold) return true;
    if (!set(kThreshold, threshold)) return false;
    pool_->told.store(threshold);
    return true;
  }
  bool trim(uint64_t keep) const {
    const alloc::Movers::Moving moving(shared().movers);
    cuuint64_t before = 0, after = 0;
    const bool known = get(kReserved, &before);
    if (driver().cuMemPoolTrimTo(pool_->handle, keep) != CUDA_SUCCESS) return false;
    if (known && get(kReserved, &after) && after < before) {
      trims.fetch_add(1);
      trimmed_bytes.fetch_add(before - after);
    }
    return true;
  }
  // How many of `reserved` bytes the pool would have released with a threshold of 0.
  uint64_t kept_of(uint64_t reserved) const {
    cuuint64_t used = 0;
    if (pool_->told.load() == 0 || !get(kUsed, &used)) return 0;
    return reserved - std::min<uint64_t>(reserved, in_steps(used));
  }

 private:
  void enter(KeptPool& pool) {
    pool.visitors.fetch_add(1);
    pool_ = &pool;
  }

  const NoCancel counted_;
  KeptPool* pool_ = nullptr;
};

template <typename Visitor>
void for_each_pool(Visitor visitor) {
  for (int i = 0; i < pools_end.load(); ++i) {
    const PoolVisit visit(&pools[i]);
    if (visit.pool() != nullptr) visitor(visit);
  }
}

bool falls_asleep(KeptPool& pool) {
  const alloc::LockGuard guard(mutex);
  if (pool.whose != Whose::ours) return false;
  belongs(pool, Whose::asleep);
  return true;
}

// Afterwards no other visit exists or begins. The threshold is lowered last: until then another
// visit may raise it, and nothing trims a pool while it is asleep.
void put_to_sleep(const PoolVisit& visit) {
  KeptPool& pool = *visit.pool();
  if (!falls_asleep(pool)) return;
  alloc::os::wait_while([&pool] { return pool.visitors.load() > 1; });
  visit.tell(0);
}

// Caller holds the mutex. nullptr: there are too many pools.
KeptPool* add(CUmemoryPool handle, CUdevice device, bool is_default, Whose whose) {
  for (KeptPool& pool : pools) {
    if (pool.whose != Whose::nobodys || pool.visitors.load() != 0) continue;
    pool.handle = handle;
    pool.device = device;
    pool.is_default = is_default;
    pool.was_set = false;
    pool.birth = ++births;
    pool.told.store(0);
    pool.high_hidden_by_us.store(0);
    pool.high_hidden_by_program.store(0);
    pool.before = 0;
    adopted.fetch_add(whose == Whose::ours);
    belongs(pool, whose);
    pools_end.store(std::max(pools_end.load(), static_cast<int>(&pool - pools) + 1));
    return &pool;
  }
  return nullptr;
}

// Whether the pool is known. A pool that was asleep becomes ours again.
bool wake_up(CUmemoryPool handle) {
  const alloc::LockGuard guard(mutex);
  KeptPool* pool = find(handle);
  if (pool != nullptr && pool->whose == Whose::asleep) belongs(*pool, Whose::ours);
  return pool != nullptr;
}

bool may_keep_on(CUdevice device) {
  const Device* there = known_device(device);
  return there != nullptr && !(automatic() && there->cap.limit() != 0);
}

void adopt_default_pool(CUdevice device) {
  const Driver& d = driver();
  CUmemoryPool pool = nullptr;
  if (d.cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS) wake_up(pool);
  if (d.cuDeviceGetDefaultMemPool(&pool, device) != CUDA_SUCCESS || wake_up(pool)) return;
  // A threshold counts as the program's even if no hook saw the call that set it.
  cuuint64_t threshold = 0;
  const bool told = d.cuMemPoolGetAttribute(pool, kThreshold, &threshold) == CUDA_SUCCESS;
  const alloc::LockGuard guard(mutex);
  if (find(pool) != nullptr) return;
  add(pool, device, /*is_default=*/true, told && threshold == 0 ? Whose::ours : Whose::programs);
}

bool driver_has_pools() {
  const Driver& d = driver();
  return d.cuMemPoolGetAttribute != nullptr && d.cuMemPoolSetAttribute != nullptr &&
         d.cuMemPoolTrimTo != nullptr && d.cuDeviceGetMemPool != nullptr &&
         d.cuDeviceGetDefaultMemPool != nullptr;
}

void raise_if_tended(const PoolVisit& visit) {
  if (visit.pool() != nullptr && tending.load() == Tending::tended) visit.tell(raised());
}

// True if memory was freed to the pool within the last second, or if a call failed: then the pool
// needs another look. Adds the kept bytes to `*kept`.
bool look_at(const PoolVisit& visit, uint64_t* kept) {
  KeptPool& pool = *visit.pool();
  cuuint64_t used = 0, high = 0, reserved = 0;
  if (!visit.get(kUsedHigh, &high) || !visit.get(kUsed, &used) || !visit.get(kReserved, &reserved))
    return true;
  *kept += reserved - std::min<uint64_t>(reserved, used);
  // A peak between this query and the reset is lost.
  pool.high_hidden_by_us.store(std::max<uint64_t>(pool.high_hidden_by_us.load(), high));
  const bool reset = visit.set(kUsedHigh, 0);
  high = std::max<uint64_t>(high, pool.high_hidden_by_program.exchange(0));
  if (!reset) high = used;
  const uint64_t lately = std::max<uint64_t>(high, pool.before);
  pool.before = high;
  const bool less = lately > used;
  const uint64_t keep = less ? in_steps(lately + lately / 8) : used;
  const bool trimmed = reserved <= keep || visit.trim(keep);
  return less || !trimmed;
}

constinit std::atomic<bool> looking{false};  // guards the next two
constinit uint64_t looked_ns = 0;
constinit bool allocated_before = false;  // between the last two looks

// True as long as a pool was used within the last second, or still has a raised threshold.
bool look_at_all() {
  const bool allocates = allocated.exchange(false);
  bool lately = allocates || allocated_before;
  allocated_before = allocates;
  uint64_t kept = 0;
  for_each_pool([&](const PoolVisit& visit) { lately |= may_call() && look_at(visit, &kept); });
  kept_peak.store(std::max(kept_peak.load(), kept));
  if (lately) return true;
  for_each_pool([&](const PoolVisit& visit) { lately |= may_call() && !visit.tell(0); });
  return lately;
}

// The next look sees allocations that come after the store of `resting`.
bool round() {
  if (looking.exchange(true)) return true;
  const uint64_t now = alloc::os::now_ns();
  const bool due = tending.load() == Tending::tended && now - looked_ns >= kLookNs;
  const GatePass pass;
  if (due && pass) {
    looked_ns = now;
    tending.store(Tending::resting);
    if (look_at_all()) tending.store(Tending::tended);
  }
  looking.store(false);
  return tending.load() == Tending::tended;
}

constexpr BackgroundWork kWork{.round = round,
                               .pause_ns = [] { return kPauseNs; },
                               .calls_driver = true,
                               .keeps_thread = false};

// True if memory may be kept: the background thread trims it, or a fixed threshold bounds it. False
// is noted for good (`without`).
bool attended() {
  if (tending.exchange(Tending::tended) == Tending::tended) return true;
  if (!automatic() || attend(/*now=*/false, &kWork)) return true;
  tending.store(Tending::without);
  return false;
}

[[gnu::noinline]] void begin_keeping() {
  if (tending.load() == Tending::without || !driver_has_pools()) return;
  const GatePass pass;
  if (!pass) return;
  const CUdevice end = known_devices_end();
  for (CUdevice device = 0; looked_at.load() != end && device < end; ++device) {
    if (may_keep_on(device)) adopt_default_pool(device);
  }
  looked_at.store(end);
  if (ours_count.load() == 0 || !attended()) return;
  // This runs also during a look, which sets `resting` while it lasts.
  for_each_pool([](const PoolVisit& visit) { visit.tell(raised()); });
}

}  // namespace

void kept_pools_used(CUmemoryPool pool) {
  if (!allocated.load(std::memory_order_relaxed)) allocated.store(true);
  const bool woken =
      pool != nullptr && asleep.load(std::memory_order_relaxed) != 0 && wake_up(pool);
  const bool all = looked_at.load(std::memory_order_relaxed) == known_devices_end();
  if (woken || !all || tending.load(std::memory_order_relaxed) == Tending::resting) begin_keeping();
}

void kept_pool_created(CUmemoryPool pool, const CUmemPoolProps& properties) {
  if (!driver_has_pools() || properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || !may_keep_on(properties.location.id))
    return;
  {
    const alloc::LockGuard guard(mutex);
    // Forgets an earlier pool with this handle whose end no hook saw.
    if (KeptPool* gone = find(pool)) belongs(*gone, Whose::nobodys);
    add(pool, properties.location.id, /*is_default=*/false, Whose::ours);
  }
  raise_if_tended(PoolVisit(pool));
}

// An unknown pool is added at once, so that no other thread adopts it meanwhile.
TakenPool::TakenPool(CUmemoryPool handle) : birth_(0), was_(Whose::nobodys) {
  {
    const alloc::LockGuard guard(mutex);
    pool_ = find(handle);
    if (pool_ != nullptr) was_ = pool_->whose;
    if (pool_ == nullptr) pool_ = add(handle, kNoDevice, /*is_default=*/false, Whose::programs);
    if (pool_ == nullptr) return;
    birth_ = pool_->birth;
    belongs(*pool_, Whose::programs);
  }
  alloc::os::wait_while([this] { return pool_->visitors.load() != 0; });
}

void TakenPool::is_the_programs() {
  const alloc::LockGuard guard(mutex);
  was_ = Whose::programs;
  if (pool_ != nullptr && pool_->birth == birth_) pool_->was_set = true;
}

void TakenPool::is_gone() { was_ = Whose::nobodys; }

TakenPool::~TakenPool() {
  if (pool_ == nullptr) return;
  const alloc::LockGuard guard(mutex);
  if (pool_->birth != birth_) return;
  const bool back = was_ == Whose::ours || was_ == Whose::asleep;
  belongs(*pool_, back && pool_->was_set ? Whose::programs : was_);  // another thread has set it
}

void tell_without_kept(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (attribute != kThreshold && attribute != kReserved && attribute != kUsedHigh) return;
  const PoolVisit visit(pool);
  if (visit.pool() == nullptr) return;
  auto& told = *static_cast<cuuint64_t*>(value);
  if (attribute == kThreshold) told = 0;
  if (attribute == kReserved) told -= visit.kept_of(told);
  if (attribute == kUsedHigh) {
    told = std::max<cuuint64_t>(told, visit.pool()->high_hidden_by_us.load());
  }
}

CUresult reset_used_high(CUmemoryPool handle, void* value) {
  const PoolVisit visit(handle);
  cuuint64_t high = 0;
  const bool known = visit.pool() != nullptr && visit.get(kUsedHigh, &high);
  const CUresult result = ask(driver().cuMemPoolSetAttribute, handle, kUsedHigh, value);
  if (visit.pool() == nullptr || result != CUDA_SUCCESS) return result;
  visit.pool()->high_hidden_by_us.store(0);
  if (known) visit.pool()->high_hidden_by_program.store(high);
  return result;
}

bool several_pools_keep() { return ours_count.load(std::memory_order_relaxed) > 1; }

void kept_pools_close(const Context& context) {
  if (!keeps_pools()) return;
  for_each_pool([&](const PoolVisit& visit) {
    if (visit.on(context.device)) put_to_sleep(visit);
  });
  looked_at.store(0);
}

void give_back_kept(CUdevice device) {
  if (!keeps_pools() || ours_count.load(std::memory_order_relaxed) == 0) return;
  const GatePass pass;
  if (!pass) return;
  for_each_pool([=](const PoolVisit& visit) {
    if (visit.on(device) && visit.pool()->told.load() != 0) visit.trim(0);
  });
}

bool trim_kept_pools(CUdevice device) {
  if (!keeps_pools()) return false;
  const GatePass pass;
  if (!pass) return false;
  bool any = false;
  for_each_pool([&](const PoolVisit& visit) {
    if (!visit.on(device) || visit.pool()->is_default) return;
    cuuint64_t before = 0, after = 0;
    if (!visit.get(kReserved, &before) || !visit.trim(0)) return;
    any |= visit.get(kReserved, &after) && after < before;
  });
  return any;
}

PoolsReport kept_pools_report() {
  return {adopted.load(), kept_peak.load(), trims.load(), trimmed_bytes.load()};
}

void reset_kept_pools_after_fork() {
  mutex.reset();
  telling.reset();
}

}  // namespace cistern::shim
