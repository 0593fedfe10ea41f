// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace simcuda {
namespace {

constexpr uint64_t kMaxDevices = 64;
constexpr uint64_t kMaxMemoryMb = uint64_t{1} << 20;  // 1 TiB a device

constexpr const char* kAllowedDevices = "0 to 64; example: 2";
constexpr const char* kAllowedMemory =
    "2 to 1048576, a list has one per device; example: 8192,4096";

// A list of sizes as read; false if it cannot be understood.
bool read_sizes(std::string_view text, std::vector<uint64_t>& sizes) {
  for (std::string_view part : split(text, ',')) {
    const auto megabytes = number<uint64_t>(part);
    if (!megabytes || *megabytes < 2 || *megabytes > kMaxMemoryMb) return false;
    sizes.push_back(*megabytes << 20);
  }
  return true;
}

void complain(Settings& out, const char* name, std::string_view value, const char* allowed) {
  if (!out.error.empty()) return;
  out.error = std::string(name) + "; value \"" + std::string(value) + "\"; allowed: " + allowed;
}

void read_devices(Settings& out) {
  const char* memory = std::getenv("SIMCUDA_MEMORY_MB");
  const char* count = std::getenv("SIMCUDA_DEVICES");
  std::vector<uint64_t> sizes;
  if (memory != nullptr && !read_sizes(memory, sizes)) {
    return complain(out, "SIMCUDA_MEMORY_MB", memory, kAllowedMemory);
  }
  if (sizes.empty()) sizes = out.memory_bytes;
  if (count != nullptr) {
    const auto devices = number<uint64_t>(count);
    if (!devices || *devices > kMaxDevices) {
      return complain(out, "SIMCUDA_DEVICES", count, kAllowedDevices);
    }
    sizes.resize(*devices, sizes.back());  // a short list repeats its last size
  }
  out.memory_bytes = std::move(sizes);
}

bool set_races(std::string_view text, Settings& out) {
  out.races = text == "report"  ? RaceMode::kReport
              : text == "abort" ? RaceMode::kAbort
                                : RaceMode::kOff;
  return text == "report" || text == "abort" || text == "off";
}

bool add_order(std::string_view text, Settings& out) {
  const uint8_t mode = text == "judge"  ? kJudged
                       : text == "racy" ? kJudged | kRacyProgram
                       : text == "meet" ? kJudged | kKernelsMeet
                                        : 0;
  out.order |= mode;
  return mode != 0;
}

bool set_leaks(std::string_view text, Settings& out) {
  out.leaks = text == "report";
  return text == "report" || text == "off";
}

bool set_missing_kernels(std::string_view text, Settings& out) {
  out.tells_missing_kernels = text == "report";
  return text == "report" || text == "off";
}

bool set_schedule(std::string_view text, Settings& out) {
  constexpr std::string_view kSeed = "seed:";
  if (!text.starts_with(kSeed)) return text == "threads";
  out.seed = number<uint64_t>(text.substr(kSeed.size()));
  return out.seed.has_value();
}

bool set_clock(std::string_view text, Settings& out) {
  out.virtual_clock = text == "virtual";
  return text == "virtual" || text == "real";
}

bool set_free_async(std::string_view text, Settings& out) {
  out.free_async = text == "late"      ? FreeAsync::kLate
                   : text == "refused" ? FreeAsync::kRefused
                                       : FreeAsync::kHelps;
  return text == "late" || text == "refused" || text == "helps";
}

bool set_free(std::string_view text, Settings& out) {
  out.free_locks = text == "locks";
  return text == "locks" || text == "waits";
}

bool add_lack(std::string_view text, Settings& out) {
  const uint8_t lack = text == "virtual-memory" ? kLacksVirtualMemory
                       : text == "file-handles" ? kLacksFiles
                       : text == "rdma"         ? kLacksRdma
                                                : 0;
  out.lacks |= lack;
  return lack != 0;
}

bool set_pitch(std::string_view text, Settings& out) {
  const auto bytes = number<uint32_t>(text);
  out.pitch_bytes = bytes.value_or(0);
  return out.pitch_bytes != 0 && out.pitch_bytes % 512 == 0;
}

bool set_queue(std::string_view text, Settings& out) {
  out.queue = number<uint32_t>(text).value_or(0);
  return out.queue != 0;
}

bool set_pool_step(std::string_view text, Settings& out) {
  const auto mebibytes = number<uint32_t>(text);
  out.pool_step_bytes = uint64_t{mebibytes.value_or(0)} << 20;
  return out.pool_step_bytes != 0 && *mebibytes % 2 == 0;
}

struct SettingRow {
  const char* name;
  bool (*set)(std::string_view text, Settings& out);
  bool list;  // of comma-separated elements, each given to `set`
  const char* allowed;
};

constexpr SettingRow kRows[] = {
    {"SIMCUDA_FAIL",
     [](std::string_view text, Settings& out) { return add_fail(text, out.faults); }, true,
     "call[:n|:every|:pP@seed][:after]=code with a driver call, a use from 1 or a probability, "
     "a CUresult; example: cuMemAlloc_v2:3=2"},
    {"SIMCUDA_LATENCY",
     [](std::string_view text, Settings& out) { return add_latency(text, out.faults); }, true,
     "call[:after]=time with ns, us or ms; example: cuLaunchKernel=2ms"},
    {"SIMCUDA_TAKES",
     [](std::string_view text, Settings& out) { return add_take(text, out.faults); }, true,
     "call=size with a call that loads code, sets a limit, creates a stream or makes or launches a "
     "graph, and KB or MB; example: cuStreamCreate=2MB"},
    {"SIMCUDA_PRESSURE",
     [](std::string_view text, Settings& out) { return add_pressure(text, out.faults); }, true,
     "device:MB:from:to in traced calls; example: 0:4096:100:200"},
    {"SIMCUDA_LOSE",
     [](std::string_view text, Settings& out) { return add_lose(text, out.faults); }, true,
     "device:calls[:code]; example: 0:100"},
    {"SIMCUDA_LACKS", add_lack, true, "virtual-memory, file-handles, rdma"},
    {"SIMCUDA_RACES", set_races, false, "report, abort, off"},
    {"SIMCUDA_ORDER", add_order, true, "judge, racy, meet; example: judge,meet"},
    {"SIMCUDA_LEAKS", set_leaks, false, "report, off"},
    {"SIMCUDA_MISSING_KERNELS", set_missing_kernels, false, "report, off"},
    {"SIMCUDA_SCHEDULE", set_schedule, false, "threads, seed:N; example: seed:1"},
    {"SIMCUDA_CLOCK", set_clock, false, "real, virtual"},
    {"SIMCUDA_FREE", set_free, false, "waits, locks"},
    {"SIMCUDA_FREE_ASYNC", set_free_async, false, "helps, late, refused"},
    {"SIMCUDA_POOL_STEP_MB", set_pool_step, false, "an even number of MiB; example: 32"},
    {"SIMCUDA_QUEUE", set_queue, false, "a number of pieces of work; example: 8"},
    {"SIMCUDA_PITCH", set_pitch, false, "a multiple of 512; example: 2048"},
};

void read_row(const SettingRow& row, Settings& out) {
  const char* text = std::getenv(row.name);
  if (text == nullptr || *text == '\0') return;
  const auto parts = row.list ? split(text, ',') : std::vector<std::string_view>{text};
  for (std::string_view part : parts) {
    if (!row.set(part, out)) return complain(out, row.name, part, row.allowed);
  }
}

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Settings read_settings() {
  Settings out;
  read_devices(out);
  for (const SettingRow& row : kRows) read_row(row, out);
  out.trace_file = text_of("SIMCUDA_TRACE");
  out.races_file = text_of("SIMCUDA_RACES_FILE");
  const std::string kernels = text_of("SIMCUDA_KERNELS");
  if (!kernels.empty()) {
    for (std::string_view part : split(kernels, ':')) out.kernel_libraries.emplace_back(part);
  }
  return out;
}

}  // namespace

const Settings& settings() {
  static const Settings& all = *new Settings(read_settings());
  return all;
}

}  // namespace simcuda
