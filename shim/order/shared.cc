// SPDX-License-Identifier: Apache-2.0
#include "shim/order/shared.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/chunk_pools/groups.h"
#include "shim/entry/driver.h"
#include "shim/process/own_file.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constinit alloc::Shared the_shared{};
constinit std::atomic<uint64_t> unseen_counts[2] = {};

}  // namespace

alloc::Shared& shared() { return the_shared; }

void noticed(Unseen what) {
  const bool stream = what == Unseen::kStream;
  if (unseen_counts[static_cast<int>(what)].fetch_add(1) != 0) return;
  log(config::LogLevel::kInfo,
      "found a CUDA %s that no hook saw created; memory that its work may touch is reused only "
      "after the program has synchronised its context; cistern doctor shows which parts of the "
      "program are not covered",
      stream ? "stream" : "context");
}

uint64_t times_noticed(Unseen what) { return unseen_counts[static_cast<int>(what)].load(); }

// --- devices ---

namespace {

constinit Device devices[kMaxDevices] = {};
constinit std::atomic<CUdevice> devices_end{0};

// The number of processors at the first call: the program may bind itself to fewer later.
unsigned allowed_cpus() {
  static constinit unsigned cpus = 0;
  if (cpus == 0) cpus = alloc::os::allowed_cpus();
  return cpus;
}

// Without virtual memory management, mode 3 becomes mode 0, whatever sizes were set for its pool.
alloc::ChunkSizes sizes_without_units(alloc::ChunkSizes sizes) {
  static constinit std::atomic<bool> warned{false};
  sizes.kind = alloc::without_units(sizes.kind);
  if (!warned.exchange(true)) {
    const StaticModeSeen seen = static_mode_seen();
    log(config::LogLevel::kWarn,
        "this device or driver has no virtual memory management; value seen %s=%d; allowed: a "
        "device and a driver (CUDA 10.2 or newer) that have it; mode %d is used",
        seen.name, seen.value, alloc::has_arenas(sizes.kind) ? 2 : 0);
  }
  return sizes;
}

}  // namespace

Device& device_state(CUdevice device) { return devices[device]; }

// Threads that call this first at the same time store the same values.
Device* known_device(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  Device& d = devices[device];
  if (d.total.load(std::memory_order_acquire) != 0) return &d;
  size_t total;
  if (driver().cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) return nullptr;
  const config::Cap cap = policy().cap_for(static_cast<unsigned>(device));
  const uint64_t limit = cap.kind == config::CapKind::kNone ? 0 : cap.bytes_of(total);
  const bool capped = limit != 0 && limit < total;  // else the device's own size is the limit
  d.cap.set_limit(capped ? limit : 0);
  d.max_request_bytes.store(capped ? limit : total, std::memory_order_relaxed);
  d.chooses_requests.store(policy().chooses_requests(), std::memory_order_relaxed);
  const bool looks = policy().chooses_requests() || alloc::group_rules(policy()).on ||
                     policy().graph_arenas() || policy().plan.value.mode != config::PlanMode::kOff;
  d.fast_path_max_bytes.store(looks ? 0 : d.max_request_bytes.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  d.total.store(total, std::memory_order_release);
  CUdevice end = devices_end.load();
  while (end <= device && !devices_end.compare_exchange_weak(end, device + 1)) {
  }
  return &d;
}

CUdevice known_devices_end() { return devices_end.load(std::memory_order_relaxed); }

alloc::ChunkSizes sizes_on(const Device& d, bool has_units) {
  static constinit std::atomic<bool> warned{false};
  const uint64_t max_bytes = d.max_request_bytes.load(std::memory_order_relaxed);
  const alloc::ChunkSizes sizes = alloc::chunk_sizes(policy(), max_bytes, allowed_cpus());
  if (alloc::has_units(sizes.kind) && !has_units) return sizes_without_units(sizes);
  if ((sizes.initial_clamped || sizes.later_clamped) && !warned.exchange(true)) {
    const config::Policy& p = policy();
    const auto mb = [](auto setting) { return static_cast<unsigned long long>(setting.value); };
    const bool growth = sizes.kind == alloc::StrategyKind::auto_growth;
    log(config::LogLevel::kWarn,
        "a chunk cannot be larger than the device; value seen %s=%llu; allowed: up to %llu, which "
        "is used now",
        sizes.initial_clamped ? "FLAGS_initial_gpu_memory_in_mb"
        : growth              ? "FLAGS_auto_growth_chunk_size_in_mb"
                              : "FLAGS_reallocate_gpu_memory_in_mb",
        sizes.initial_clamped ? mb(p.initial_gpu_memory_in_mb)
        : growth              ? mb(p.auto_growth_chunk_size_in_mb)
                              : mb(p.reallocate_gpu_memory_in_mb),
        static_cast<unsigned long long>(max_bytes >> 20));
  }
  return sizes;
}

// --- plans ---

namespace {

constexpr uint32_t kNobody = UINT32_MAX;

struct DevicePlan {
  alloc::plan::Plan plans[alloc::plan::kMostPlans];
  uint32_t count = 0;
  uint32_t context = kNobody;

  std::span<const alloc::plan::Plan> all() const { return {plans, count}; }
};

constinit DevicePlan plans[kMaxDevices]{};
constinit bool looked = false;

void refuse_plan(const char* path, const char* what, uint64_t seen, const char* allowed) {
  log(config::LogLevel::kWarn,
      "no plan is used: %s: %s; value seen %llu; allowed: %s; try: cistern plan RECORDING -o FILE",
      path, what, static_cast<unsigned long long>(seen), allowed);
}

// No plan that can be read is larger.
constexpr off_t kMostFileBytes = off_t{4} << 30;

// Reads the whole text of a file that begins like a plan into memory of its own, so later writes to
// the file change nothing here. Empty, with errno set, if it cannot be read (EINVAL: not a regular
// file, or empty).
std::span<const uint8_t> read_whole(int file) {
  struct stat status;
  char magic[sizeof alloc::plan::kPlanMagic] = {};
  if (fstat(file, &status) != 0) return {};
  errno = EINVAL;
  if (!S_ISREG(status.st_mode) || status.st_size == 0) return {};
  errno = EFBIG;
  const bool begins = pread(file, magic, sizeof magic, 0) == ssize_t{sizeof magic} &&
                      memcmp(magic, alloc::plan::kPlanMagic, sizeof magic) == 0;
  // A file that is no plan is refused by its beginning.
  const off_t wanted = begins ? status.st_size : std::min<off_t>(status.st_size, alloc::os::kPage);
  if (wanted > kMostFileBytes) return {};
  const auto bytes = static_cast<size_t>(wanted);
  auto* text = static_cast<uint8_t*>(alloc::os::map(bytes));
  errno = ENOMEM;
  size_t got = 0;
  while (text != nullptr && got < bytes) {
    const ssize_t more = pread(file, text + got, bytes - got, static_cast<off_t>(got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  if (text == nullptr || got == bytes) return {text, text == nullptr ? 0 : bytes};
  const int saved = errno;
  alloc::os::unmap(text, bytes);
  errno = saved;
  return {};
}

std::span<const uint8_t> read_whole(const char* path) {
  // O_NONBLOCK: a pipe must not hold up the program.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return {};
  const std::span<const uint8_t> text = read_whole(file);
  const int saved = errno;
  close(file);
  errno = saved;
  return text;
}

// Adds a plan to those of the same device that were read before.
bool add_plan(const alloc::plan::Plan& plan, const char* path) {
  using alloc::plan::Period;
  DevicePlan& own = plans[plan.head().device];
  const bool of_threads = plan.head().period == Period::thread;
  if (own.count != 0 && (!of_threads || own.plans[0].head().period != Period::thread)) {
    return refuse_plan(path, "two plans of one device", plan.head().device, "one"), false;
  }
  if (own.count == alloc::plan::kMostPlans) {
    return refuse_plan(path, "plans of one device", own.count + 1, "16"), false;
  }
  own.plans[own.count++] = plan;
  return true;
}

// Reads each plan of the file. The plans refer to the text.
bool read_each(const char* path, std::span<const uint8_t> text) {
  while (!text.empty()) {
    alloc::plan::Plan plan;
    const alloc::plan::PlanProblem problem = plan.read_first(&text);
    const uint32_t device = plan.head().device;
    if (problem.what != nullptr) {
      return refuse_plan(path, problem.what, problem.seen, problem.allowed), false;
    }
    if (device >= kMaxDevices) return refuse_plan(path, "the device", device, "0 to 63"), false;
    if (!add_plan(plan, path)) return false;
  }
  return true;
}

// Reads all plans of the file, or none.
bool read_plans(const char* path, std::span<const uint8_t> text) {
  if (read_each(path, text)) return true;
  for (DevicePlan& each : plans) each.count = 0;
  return false;
}

void load_plans(const char* path) {
  const std::span<const uint8_t> text = read_whole(path);
  if (text.empty()) {
    return log(config::LogLevel::kWarn,
               "no plan is used: a file cannot be read: %s; value seen \"%s\"; try: ls -l %s",
               strerrordesc_np(errno), path, path);
  }
  if (!read_plans(path, text)) {
    alloc::os::unmap(const_cast<uint8_t*>(text.data()), text.size());
  }
}

bool plans_fit(std::span<const alloc::plan::Plan> all, uint64_t total, const char* path) {
  const auto& align = policy().align;
  uint64_t left = total;
  for (const alloc::plan::Plan& plan : all) {
    const alloc::plan::PlanHead& head = plan.head();
    if (head.bytes > left) {
      refuse_plan(path, "a plan of more bytes than the device has", head.bytes, "the device's");
      return false;
    }
    left -= head.bytes;
    if (align.set && head.alignment < align.value) {
      refuse_plan(path, "a plan of another alignment than CISTERN_ALIGN", head.alignment,
                  "that, or more (cistern plan --alignment)");
      return false;
    }
  }
  return true;
}

}  // namespace

std::span<const alloc::plan::Plan> claim_plan(CUdevice device, uint64_t total, uint32_t context) {
  const config::Plan& wanted = policy().plan.value;
  if (wanted.mode != config::PlanMode::kFile) return {};
  char path[PATH_MAX];
  path_from_start(wanted.file, path);
  if (!looked) {
    looked = true;
    const int saved = errno;
    load_plans(path);
    errno = saved;
  }
  DevicePlan& own = plans[device];
  if (own.count == 0 || own.context != kNobody) return {};
  if (!plans_fit(own.all(), total, path)) own.count = 0;
  if (own.count == 0) return {};
  own.context = context;
  return own.all();
}

void give_up_plan(uint32_t context) {
  for (DevicePlan& each : plans) {
    if (each.context == context) each.context = kNobody;
  }
}

}  // namespace cistern::shim
