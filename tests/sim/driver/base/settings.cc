// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/errors.h"
#include "table/calls.h"

namespace simcuda {
namespace {

constexpr uint64_t kMaxDevices = 64;
constexpr uint64_t kMaxMemoryMb = uint64_t{1} << 20;  // 1 TiB a device

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> duration_ns(std::string_view text) {
  constexpr struct {
    std::string_view suffix;
    uint64_t ns;
  } kUnits[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}};
  for (const auto& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    const auto count = number(text.substr(0, text.size() - unit.suffix.size()));
    if (count) return *count * unit.ns;
  }
  return std::nullopt;
}

bool known_call(std::string_view name) {
  for (const CallInfo& call : simulated_calls()) {
    if (name == call.symbol || name == call.name) return true;
  }
  return false;
}

void complain(Settings& out, std::string_view name, std::string_view value, const char* allowed) {
  if (!out.error.empty()) return;
  out.error = std::string(name) + "; value \"" + std::string(value) + "\"; allowed: " + allowed;
}

void parse_devices(Settings& out, const SettingTexts& texts) {
  uint64_t devices = 0;
  if (texts.devices != nullptr) {
    const auto count = number(texts.devices);
    if (!count || *count > kMaxDevices) {
      return complain(out, "SIMCUDA_DEVICES", texts.devices, "0 to 64; example: 2");
    }
    devices = *count;
  }
  std::vector<uint64_t> sizes;
  if (texts.memory_mb != nullptr) {
    for (std::string_view part : split(texts.memory_mb, ',')) {
      const auto megabytes = number(part);
      if (!megabytes || *megabytes < 2 || *megabytes > kMaxMemoryMb) {
        return complain(out, "SIMCUDA_MEMORY_MB", texts.memory_mb,
                        "2 to 1048576, a list has one per device; example: 8192,4096");
      }
      sizes.push_back(*megabytes << 20);
    }
  }
  if (sizes.empty()) sizes = out.memory_bytes;
  if (texts.devices == nullptr) devices = sizes.size();
  sizes.resize(devices, sizes.back());  // a short list repeats its last size
  out.memory_bytes = std::move(sizes);
}

void parse_fail(Settings& out, const char* text) {
  for (std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return complain(out, "SIMCUDA_FAIL", part, "call[:n]=code; example: cuMemAlloc_v2:3=2");
    }
    std::string_view call = part.substr(0, equals);
    std::optional<uint64_t> nth = 0;
    if (const size_t colon = call.find(':'); colon != std::string_view::npos) {
      nth = number(call.substr(colon + 1));
      call = call.substr(0, colon);
    }
    const auto code = find_error(part.substr(equals + 1));
    if (!nth || !code || !known_call(call)) {
      return complain(out, "SIMCUDA_FAIL", part,
                      "a driver call, a use from 1, a CUresult; example: cuMemAlloc_v2:3=2");
    }
    out.fail.push_back({std::string(call), *nth, *code});
  }
}

void parse_latency(Settings& out, const char* text) {
  for (std::string_view part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string_view call = part.substr(0, equals);
    const auto ns =
        equals == std::string_view::npos ? std::nullopt : duration_ns(part.substr(equals + 1));
    if (!ns || !known_call(call)) {
      return complain(out, "SIMCUDA_LATENCY", part,
                      "call=time with ns, us or ms; example: cuLaunchKernel=2ms");
    }
    out.latency.push_back({std::string(call), *ns});
  }
}

}  // namespace

Settings parse_settings(const SettingTexts& texts) {
  Settings out;
  parse_devices(out, texts);
  if (texts.trace != nullptr) out.trace_file = texts.trace;
  if (texts.kernels != nullptr && *texts.kernels != '\0') {
    for (std::string_view part : split(texts.kernels, ':')) out.kernel_libraries.emplace_back(part);
  }
  if (texts.fail != nullptr && *texts.fail != '\0') parse_fail(out, texts.fail);
  if (texts.latency != nullptr && *texts.latency != '\0') parse_latency(out, texts.latency);
  return out;
}

const Settings& settings() {
  static const Settings& all = *new Settings(parse_settings({
      .devices = std::getenv("SIMCUDA_DEVICES"),
      .memory_mb = std::getenv("SIMCUDA_MEMORY_MB"),
      .trace = std::getenv("SIMCUDA_TRACE"),
      .kernels = std::getenv("SIMCUDA_KERNELS"),
      .fail = std::getenv("SIMCUDA_FAIL"),
      .latency = std::getenv("SIMCUDA_LATENCY"),
  }));
  return all;
}

}  // namespace simcuda
