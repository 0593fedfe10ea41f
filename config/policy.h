// SPDX-License-Identifier: Apache-2.0
//
// The policy: what the settings ask for, as one plain struct. load() fills it once before main();
// afterwards nobody writes it, so every thread may read it without a lock. The members stand in
// the order of the table (table.cc), which has their meaning, range and default.
//
// A Policy that is all zero bytes is valid storage but not the defaults: ask default_policy()
// (load.h). Text members point into the Loaded that holds the policy.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::config {

// A value, and whether the user set it. Some settings act differently when they are set to their
// default than when they are not set (FLAGS_eager_delete_tensor_gb, FLAGS_free_idle_memory, the
// chunk flags).
template <typename T>
struct Setting {
  T value;
  bool set;
  constexpr operator T() const { return value; }  // NOLINT(google-explicit-constructor)
};

enum class OnError : int { kInactive, kAbort };
enum class LogLevel : int { kError, kWarn, kInfo, kDebug };
enum class ReportFormat : int { kNone, kText, kJson };
enum class Sites : int { kNone, kRanges, kStacks };
enum class Strategy : int { kOnDemand, kLegacy, kNaiveBestFit, kAutoGrowth, kThreadLocal };
enum class StaticMode : int { kDynamic, kStaticOld, kStatic, kExpandable, kBoth };
enum class CleanPolicy : int { kCentralised, kSeparate };
enum class FreeSync : int { kAuto, kTrue, kFalse };
enum class ReuseLevel : int { kSameSize, kAnyThatFits };
enum class PlanMode : int { kOff, kAuto, kFile };

struct Plan {
  PlanMode mode;
  const char* file;  // only for kFile
};

enum class ThresholdMode : int { kAuto, kOff, kBytes };

// How much memory a driver's memory pool keeps if the program set no release threshold for it.
struct PoolThreshold {
  ThresholdMode mode;
  uint64_t bytes;  // only for kBytes
};

enum class CapKind : int { kNone, kBytes, kPercent };

// What a process may take from one device.
struct Cap {
  CapKind kind;
  uint64_t bytes;  // only for kBytes
  double percent;  // only for kPercent: of the device's total memory

  // The cap in bytes on a device with `total` bytes; never above total, and never rounded to 0,
  // which would read as no cap.
  constexpr uint64_t bytes_of(uint64_t total) const {
    switch (kind) {
      case CapKind::kBytes:
        return bytes < total ? bytes : total;
      case CapKind::kPercent: {
        const double part = static_cast<double>(total) * (percent / 100);
        if (percent >= 100) return total;
        return part < 1 ? 1 : static_cast<uint64_t>(part);
      }
      case CapKind::kNone:
        break;
    }
    return total;
  }
};

// Sizes from `low` to `high` bytes, both included.
struct SizeRange {
  uint64_t low;
  uint64_t high;
};

inline constexpr size_t kMaxSizeRanges = 16;
inline constexpr unsigned kMaxDevices = 64;

struct SizeRanges {
  SizeRange range[kMaxSizeRanges];
  size_t count;
};

// There is only one Policy, so its members are in the order of the table, not packed.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct Policy {
  // General
  Setting<bool> pool;
  Setting<const char*> config;
  Setting<OnError> on_error;
  Setting<LogLevel> log;
  Setting<const char*> log_file;
  Setting<ReportFormat> report;
  Setting<const char*> report_file;
  Setting<Sites> sites;
  Setting<const char*> record;

  // Limits
  Setting<uint64_t> gpu_memory_limit_mb;
  Setting<Cap> gpu_limit;
  Setting<Cap> gpu_limit_of[kMaxDevices];  // CISTERN_GPU_LIMIT_<n>

  // GPU chunks
  Setting<Strategy> allocator_strategy;
  Setting<uint64_t> auto_growth_chunk_size_in_mb;
  Setting<double> fraction_of_gpu_memory_to_use;
  Setting<uint64_t> initial_gpu_memory_in_mb;    // 0: not set
  Setting<int64_t> reallocate_gpu_memory_in_mb;  // 0: not set
  Setting<bool> free_idle_memory;
  Setting<uint64_t> idle_ms;
  Setting<uint64_t> idle_keep_mb;
  Setting<bool> init_allocated_mem;
  Setting<int> alloc_fill_value;

  // Garbage
  Setting<bool> fast_eager_deletion_mode;
  Setting<double> eager_delete_tensor_gb;
  Setting<double> memory_fraction_of_eager_deletion;
  Setting<bool> eager_delete_scope;
  Setting<int64_t> limit_of_tmp_allocation;
  Setting<double> times_excess_than_required_tmp_allocation;
  Setting<PoolThreshold> mempool_threshold;

  // Static memory
  Setting<StaticMode> ge_use_static_memory;
  Setting<StaticMode> static_memory_policy;
  Setting<const char*> graph_range;
  Setting<CleanPolicy> atomic_clean_policy;

  // Lifetime-based reuse
  Setting<ReuseLevel> memory_optimize;  // not set: off
  Setting<Plan> plan;
  Setting<const char*> skip_opt_set;
  Setting<bool> skip_grads;
  Setting<bool> print_log;
  Setting<bool> enable_inplace_whitelist;
  Setting<int32_t> fuse_parameter_groups_size;
  Setting<double> fuse_parameter_memory_size;

  // Host memory
  Setting<const char*> malloc_conf;
  Setting<uint64_t> initial_cpu_memory_in_mb;
  Setting<double> fraction_of_cpu_memory_to_use;
  Setting<bool> use_pinned_memory;
  Setting<bool> pin_eager;
  Setting<bool> pinned_pool;
  Setting<double> fraction_of_cuda_pinned_memory_to_use;

  // Finding faults
  Setting<FreeSync> free_sync;
  Setting<uint64_t> align;
  Setting<SizeRanges> only_sizes;
  Setting<const char*> only_sites;
  Setting<uint64_t> pool_first;  // not set: all

  // The mode in force, from whichever of its two settings; mode 1 means mode 2.
  constexpr StaticMode static_mode() const {
    const bool ge = ge_use_static_memory.value != StaticMode::kDynamic;
    const StaticMode mode = ge ? ge_use_static_memory.value : static_memory_policy.value;
    return mode == StaticMode::kStaticOld ? StaticMode::kStatic : mode;
  }

  // Whether memory is physical units that move, and whether graphs have arenas.
  constexpr bool expandable() const {
    return static_mode() == StaticMode::kExpandable || static_mode() == StaticMode::kBoth;
  }
  constexpr bool graph_arenas() const {
    return static_mode() == StaticMode::kStatic || static_mode() == StaticMode::kBoth;
  }

  // The strategy in force: the one that the user named. Else legacy if the size of a chunk was set,
  // except with a static memory mode, whose arena or pool these sizes are for. Else on demand.
  constexpr Strategy strategy() const {
    if (allocator_strategy.set) return allocator_strategy.value;
    const bool dynamic = static_mode() == StaticMode::kDynamic;
    const bool sized = fraction_of_gpu_memory_to_use.set || initial_gpu_memory_in_mb.set ||
                       reallocate_gpu_memory_in_mb.set;
    return dynamic && sized ? Strategy::kLegacy : Strategy::kOnDemand;
  }

  // What memory is filled with before the program gets it, or -1.
  constexpr int fill_byte() const {
    if (alloc_fill_value.value >= 0) return alloc_fill_value.value;
    return init_allocated_mem.value ? 0xEF : -1;
  }

  // Whether no setting is set that says how host memory is obtained, kept or locked.
  constexpr bool leaves_host_memory() const {
    return !use_pinned_memory.set && !initial_cpu_memory_in_mb.set &&
           !fraction_of_cpu_memory_to_use.set && !free_idle_memory.set && !pin_eager.set;
  }

  // Whether host chunks are locked: if a setting of host chunks is set, and use_pinned_memory is
  // not false.
  constexpr bool locks_host_memory() const {
    const bool asked =
        use_pinned_memory.set || initial_cpu_memory_in_mb.set || fraction_of_cpu_memory_to_use.set;
    return asked && use_pinned_memory.value;
  }

  // Whether some requests are to stay out of the pools.
  constexpr bool chooses_requests() const {
    return only_sizes.set || pool_first.set || chooses_sites();
  }

  // Whether the call site or the range of a request decides that.
  constexpr bool chooses_sites() const {
    return skip_opt_set.set || only_sites.set || skip_grads.value || enable_inplace_whitelist.value;
  }

  // Whether the call site or the range of a request decides how it is served.
  constexpr bool treats_sites_differently() const {
    return chooses_sites() || fuse_parameter_groups_size.set || fuse_parameter_memory_size.set;
  }

  // Whether stream-ordered memory is cached per stream.
  constexpr bool caches_scratch() const {
    return limit_of_tmp_allocation.set || times_excess_than_required_tmp_allocation.set;
  }

  // The cap of the CUDA device `device`: its own, else the one for all devices.
  constexpr Cap cap_for(unsigned device) const {
    if (device < kMaxDevices && gpu_limit_of[device].set) return gpu_limit_of[device].value;
    if (gpu_limit.set) return gpu_limit.value;
    if (gpu_memory_limit_mb.value == 0) return {CapKind::kNone, 0, 0};
    return {CapKind::kBytes, gpu_memory_limit_mb.value << 20, 0};
  }
  constexpr bool any_cap() const {
    for (unsigned device = 0; device < kMaxDevices; ++device) {
      if (cap_for(device).kind != CapKind::kNone) return true;
    }
    return false;
  }
};

}  // namespace cistern::config
