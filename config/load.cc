// SPDX-License-Identifier: Apache-2.0
#include "config/load.h"

#include <cerrno>
#include <cstring>

#include "config/text.h"

namespace cistern::config {
namespace {

// --- each value by itself ---

// `room` takes the text of a per-device name.
const char* device_name(unsigned device, Line& room) {
  LineWriter(room).text("CISTERN_GPU_LIMIT_").number(device);
  return room.text;
}

void write_bad_value(const Row& row, const char* name, const Given& given, Loaded& out) {
  LineWriter line(out.error);
  line.text("cistern: error: ").text(name);
  if (row.elsewhere[0] != '\0') line.text(" (").text(row.elsewhere).text(")");
  line.text(" cannot be used");
  if (given.origin == Origin::kFile) {
    line.text(" (").text(given_for(out, "CISTERN_CONFIG").text).text(":");
    line.number(given.line).text(")");
  }
  line.text("; value seen ").quoted(given.text).text("; allowed: ");
  write_allowed(row, line);
  line.text("; example: ").text(name).text("=").text(row.example);
}

bool check_row(const Row& row, const Given& given, Loaded& out) {
  Value value{};
  if (!parse_value(row, given.text, value))
    return write_bad_value(row, row.name, given, out), false;
  row.store(out.policy, value, true);
  return true;
}

bool check_device(const Row& row, unsigned device, Loaded& out) {
  const Given& given = out.given_device[device];
  if (given.text == nullptr) return true;
  Value value{};
  if (!parse_value(row, given.text, value)) {
    Line name;
    return write_bad_value(row, device_name(device, name), given, out), false;
  }
  out.policy.gpu_limit_of[device] = {value.cap, true};
  return true;
}

// In the order of the table, so that of several bad values every process names the same one.
bool check_values(Loaded& out) {
  for (size_t i = 0; i < kTable.size(); ++i) {
    const Row& row = kTable[i];
    if (out.given[i].text != nullptr && !check_row(row, out.given[i], out)) return false;
    if (row.store != nullptr) continue;
    for (unsigned device = 0; device < kMaxDevices; ++device) {
      if (!check_device(row, device, out)) return false;
    }
  }
  return true;
}

// --- conflicts ---

// Settings that are good by themselves may conflict. There is one function per rule; the first that
// finds a conflict names both settings. What depends on the device (a chunk larger than its memory,
// say) cannot be known here.

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

// Whether no two settings conflict. To be called after each of them was checked by itself.
bool check_conflicts(Loaded& out) {
  return check_two_modes(out) && check_mode_with_others(out) && check_two_limits(out) &&
         check_limit_holds_first_chunk(out) && check_fill(out);
}

// --- settings that change nothing ---

void warn_report_file_alone(Loaded& out) {
  const Policy& policy = out.policy;
  if (!policy.report_file.set || policy.report.set) return;
  LineWriter(next_warning(out))
      .text("cistern: warn: no report will be written; CISTERN_REPORT_FILE=")
      .quoted(policy.report_file.value)
      .text(" without CISTERN_REPORT; set CISTERN_REPORT=text or json");
}

// A setting that was given and that nothing looks at beside the others in force.
void warn_idle(const char* name, bool idle, const char* reason, Loaded& out) {
  const char* text = given_for(out, name).text;
  if (!idle || text == nullptr) return;
  LineWriter(next_warning(out))
      .text("cistern: warn: a setting changes nothing here; ")
      .text(name)
      .text("=")
      .quoted(text)
      .text("; ")
      .text(reason);
}

void warn_idle_chunk_settings(Loaded& out) {
  const Strategy strategy = out.policy.strategy();
  const bool growth = strategy == Strategy::kAutoGrowth;
  const bool alike = strategy == Strategy::kNaiveBestFit;
  const bool none = out.policy.fraction_of_gpu_memory_to_use == 0;
  const char* sized = "auto_growth has FLAGS_auto_growth_chunk_size_in_mb";
  warn_idle("FLAGS_auto_growth_chunk_size_in_mb", !growth,
            "it is for FLAGS_allocator_strategy=auto_growth", out);
  warn_idle("FLAGS_fraction_of_gpu_memory_to_use", growth && !none, sized, out);
  warn_idle("FLAGS_initial_gpu_memory_in_mb", growth, sized, out);
  warn_idle("FLAGS_reallocate_gpu_memory_in_mb", growth || alike,
            growth ? sized : "all chunks of naive_best_fit have the first one's size", out);
  const bool whole = strategy == Strategy::kOnDemand;
  const bool splits = out.policy.expandable() || out.policy.graph_arenas();
  warn_idle("CISTERN_ALIGN", whole && !splits,
            "it is for strategies that split chunks; try FLAGS_allocator_strategy=auto_growth",
            out);
}

// Only of Cistern's own names: another program of the machine may be meant by FLAGS_ alone.
void warn_idle_companions(Loaded& out) {
  const Policy& policy = out.policy;
  const char* released = "it is for FLAGS_free_idle_memory=true";
  warn_idle("CISTERN_IDLE_MS", !policy.free_idle_memory, released, out);
  warn_idle("CISTERN_IDLE_KEEP_MB", !policy.free_idle_memory, released, out);
  warn_idle("CISTERN_ATOMIC_CLEAN_POLICY", policy.fill_byte() < 0,
            "it is for FLAGS_init_allocated_mem=true", out);
  warn_idle("CISTERN_PIN_EAGER", !policy.locks_host_memory(),
            "it is for FLAGS_use_pinned_memory=true", out);
}

// With CISTERN_POOL=off: one line in place of all others but those of unknown names, one of which
// may have been to record. What is said and how bad values end hold all the same.
void warn_beside_off(Loaded& out) {
  Line names;
  LineWriter list(names);
  const auto note = [&](std::string_view name, const Given& given) {
    const bool still_holds =
        name == "CISTERN_POOL" || name == "CISTERN_CONFIG" || name == "CISTERN_ON_ERROR" ||
        name == "CISTERN_RECORD" || (name == "CISTERN_SITES" && out.policy.record.set) ||
        (name == "CISTERN_GRAPH_RANGE" && out.policy.record.set) || begins(name, "CISTERN_LOG");
    if (given.text != nullptr && !still_holds) list.text(" ").text(name);
  };
  for (size_t i = 0; i < kTable.size(); ++i) note(kTable[i].name, out.given[i]);
  for (unsigned device = 0; device < kMaxDevices; ++device) {
    Line name;
    note(device_name(device, name), out.given_device[device]);
  }
  if (list.length() == 0) return;
  LineWriter(next_warning(out))
      .text("cistern: warn: with CISTERN_POOL=off these settings change nothing:")
      .text(names.text)
      .text("; unset them, or CISTERN_POOL");
}

// --- load() ---

// The first of that name, as getenv has it; nullptr when there is none.
const char* find_in(const char* const* envp, std::string_view name) {
  for (; *envp != nullptr; ++envp) {
    const std::string_view entry = *envp;
    const size_t size = name.size();
    if (begins(entry, name) && entry.size() > size && entry[size] == '=') return *envp + size + 1;
  }
  return nullptr;
}

bool collect(const char* const* envp, Loaded& out) {
  const bool good = collect_environment(envp, out);
  // The file is read after a bad environment too: it may say what to do about that.
  const Line first_error = out.error;
  const char* path = find_in(envp, "CISTERN_CONFIG");
  if (path == nullptr || *path == '\0') return good;
  if (good) return collect_file(path, out);
  collect_file(path, out);
  out.error = first_error;
  return false;
}

bool fill(const char* const* envp, Loaded& out) {
  if (!collect(envp, out)) return false;
  const size_t unknown = out.warning_count, dropped = out.warnings_dropped;
  if (!check_values(out) || !check_conflicts(out)) return false;
  warn_report_file_alone(out);
  warn_idle_chunk_settings(out);
  warn_idle_companions(out);
  if (!out.policy.pool) {
    out.warning_count = unknown;
    out.warnings_dropped = dropped;
    warn_beside_off(out);
  }
  return true;
}

// Also when another value is bad: what to do about bad values is the user's choice.
OnError wanted_on_error(const char* const* envp, const Loaded& out) {
  const char* text = find_in(envp, "CISTERN_ON_ERROR");
  if (text == nullptr) text = given_for(out, "CISTERN_ON_ERROR").text;
  return text != nullptr && std::strcmp(text, "abort") == 0 ? OnError::kAbort : OnError::kInactive;
}

void say_dropped(Loaded& out) {
  if (out.warnings_dropped == 0) return;
  LineWriter(out.warnings[kMaxWarnings - 1])
      .text("cistern: warn: more settings change nothing; ")
      .number(static_cast<int64_t>(out.warnings_dropped) + 1)
      .text(" of them are not listed; see cistern flags");
}

void clear(Loaded& out) {
  out.policy = default_policy();
  out.error.text[0] = '\0';
  out.warning_count = 0;
  out.warnings_dropped = 0;
  out.launched = false;
  out.given = {};
  for (Given& given : out.given_device) given = {};
  out.storage_used = 0;
}

void write_given(const char* name, const Given& given, LineWriter& out) {
  if (given.text == nullptr) return;
  if (out.length() > 0) out.text(" ");
  out.text(name).text("=").text(given.text);
}

}  // namespace

Policy default_policy() {
  Policy policy{};
  for (const Row& row : kTable) {
    if (row.default_text == nullptr) continue;
    Value value{};
    if (parse_value(row, row.default_text, value)) row.store(policy, value, false);
  }
  return policy;
}

void load(const char* const* envp, Loaded& out) {
  // After a clearenv() there is no list at all: another library's constructor may have called it.
  static constexpr const char* kNothing[] = {nullptr};
  if (envp == nullptr) envp = kNothing;
  const int saved_errno = errno;
  clear(out);
  if (fill(envp, out)) {
    out.status = out.policy.pool ? Status::kOk : Status::kOff;
  } else {
    const OnError on_error = wanted_on_error(envp, out);
    out.policy = default_policy();
    out.policy.pool.value = false;
    out.policy.on_error = {on_error, true};
    out.status = Status::kBad;
  }
  say_dropped(out);
  errno = saved_errno;
}

Line& next_warning(Loaded& out) {
  if (out.warning_count < kMaxWarnings) return out.warnings[out.warning_count++];
  ++out.warnings_dropped;
  return out.warnings[kMaxWarnings - 1];
}

size_t format_policy_line(const Loaded& loaded, char* out, size_t size) {
  LineWriter line(out, size);
  for (size_t i = 0; i < kTable.size(); ++i) {
    const Row& row = kTable[i];
    write_given(row.name, loaded.given[i], line);
    if (row.store != nullptr) continue;
    for (unsigned device = 0; device < kMaxDevices; ++device) {
      Line name;
      if (loaded.given_device[device].text == nullptr) continue;
      write_given(device_name(device, name), loaded.given_device[device], line);
    }
  }
  if (line.length() == 0) line.text("defaults");
  return line.length();
}

Given given_for(const Loaded& loaded, const char* name) {
  unsigned device = kNoDevice;
  const Row* row = find_row(name, device);
  if (row == nullptr) return {};
  if (row->store != nullptr) return loaded.given[static_cast<size_t>(row - kTable.data())];
  return device < kMaxDevices ? loaded.given_device[device] : Given{};
}

}  // namespace cistern::config
