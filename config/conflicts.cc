// SPDX-License-Identifier: Apache-2.0
//
// Settings that are good by themselves and conflict. One function per rule; the first
// that finds a conflict names both settings. What depends on the device (a chunk larger than its
// memory, say) cannot be known here.
#include "config/load.h"

namespace cistern::config {
namespace {

bool conflict(const char* one, const char* other, const char* allowed, Loaded& out) {
  const auto show = [&](LineWriter& line, const char* name) -> LineWriter& {
    return line.text(name).text("=").quoted(given_for(out, name).text, 40);
  };
  LineWriter line(out.error);
  line.text("cistern: error: two settings conflict; value seen ");
  show(line, one).text(" and ");
  show(line, other).text("; allowed: ").text(allowed).text("; example: unset ").text(other);
  return false;
}

constexpr char kGeMode[] = "GE_USE_STATIC_MEMORY";
constexpr char kMode[] = "CISTERN_STATIC_MEMORY_POLICY";

// Mode 1 is an old name of mode 2.
StaticMode modern(StaticMode mode) {
  return mode == StaticMode::kStaticOld ? StaticMode::kStatic : mode;
}

bool check_two_modes(Loaded& out) {
  const Policy& policy = out.policy;
  if (!policy.ge_use_static_memory.set || !policy.static_memory_policy.set) return true;
  if (modern(policy.ge_use_static_memory) == modern(policy.static_memory_policy)) return true;
  return conflict(kGeMode, kMode, "the same mode in both, or one of them", out);
}

bool check_mode_with_others(Loaded& out) {
  const Policy& policy = out.policy;
  if (policy.static_mode() == StaticMode::kDynamic) return true;
  const char* mode = policy.ge_use_static_memory != StaticMode::kDynamic ? kGeMode : kMode;
  if (policy.allocator_strategy.set) {
    return conflict(mode, "FLAGS_allocator_strategy",
                    "a mode or a strategy, since both organise the same memory", out);
  }
  if (policy.memory_optimize.set) {
    return conflict(mode, "CISTERN_MEMORY_OPTIMIZE",
                    "CISTERN_MEMORY_OPTIMIZE with mode 0 or with a strategy", out);
  }
  return true;
}

// The name of the first device that has a limit for which `wrong` holds.
template <typename Wrong>
bool find_device_limit(const Policy& policy, Line& name, Wrong wrong) {
  for (unsigned device = 0; device < kMaxDevices; ++device) {
    const Setting<Cap>& limit = policy.gpu_limit_of[device];
    if (!limit.set || !wrong(limit.value)) continue;
    LineWriter(name).text("CISTERN_GPU_LIMIT_").number(device);
    return true;
  }
  return false;
}

bool check_two_limits(Loaded& out) {
  constexpr char kMb[] = "FLAGS_gpu_memory_limit_mb";
  if (!out.policy.gpu_memory_limit_mb.set) return true;
  const char* allowed = "the limit in one unit";
  if (out.policy.gpu_limit.set) return conflict(kMb, "CISTERN_GPU_LIMIT", allowed, out);
  Line name;
  if (!find_device_limit(out.policy, name, [](const Cap&) { return true; })) return true;
  return conflict(kMb, name.text, allowed, out);
}

bool check_limit_holds_first_chunk(Loaded& out) {
  constexpr char kChunk[] = "FLAGS_initial_gpu_memory_in_mb";
  const Policy& policy = out.policy;
  const uint64_t chunk = policy.initial_gpu_memory_in_mb << 20;
  const auto too_low = [&](const Cap& cap) {
    return cap.kind == CapKind::kBytes && cap.bytes < chunk;
  };
  const char* allowed = "a limit of at least the first chunk";
  if (policy.gpu_memory_limit_mb != 0 &&
      policy.gpu_memory_limit_mb < policy.initial_gpu_memory_in_mb) {
    return conflict("FLAGS_gpu_memory_limit_mb", kChunk, allowed, out);
  }
  if (too_low(policy.gpu_limit.value)) return conflict("CISTERN_GPU_LIMIT", kChunk, allowed, out);
  Line name;
  if (!find_device_limit(policy, name, too_low)) return true;
  return conflict(name.text, kChunk, allowed, out);
}

bool check_fill(Loaded& out) {
  const Policy& policy = out.policy;
  if (policy.alloc_fill_value < 0) return true;
  if (!policy.init_allocated_mem.set || policy.init_allocated_mem) return true;
  return conflict("FLAGS_alloc_fill_value", "FLAGS_init_allocated_mem",
                  "a fill value with FLAGS_init_allocated_mem=true or not set", out);
}

}  // namespace

bool check_conflicts(Loaded& out) {
  return check_two_modes(out) && check_mode_with_others(out) && check_two_limits(out) &&
         check_limit_holds_first_chunk(out) && check_fill(out);
}

}  // namespace cistern::config
