// SPDX-License-Identifier: Apache-2.0
#include "base/fault_rules.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/errors.h"
#include "base/text.h"
#include "table/calls.h"

namespace simcuda {
namespace {

bool known_call(std::string_view name) {
  for (const CallInfo& call : simulated_calls()) {
    if (name == call.symbol || name == call.name) return true;
  }
  return false;
}

// Only these take memory of the driver's own (memory/taken.h).
bool takes_memory(std::string_view name) {
  constexpr std::string_view kNames[] = {"cuModuleLoad",
                                         "cuModuleLoadData",
                                         "cuModuleLoadDataEx",
                                         "cuModuleLoadFatBinary",
                                         "cuLibraryLoadData",
                                         "cuLaunchKernel",
                                         "cuLaunchKernelEx",
                                         "cuLaunchCooperativeKernel",
                                         "cuCtxSetLimit",
                                         "cuStreamCreate",
                                         "cuStreamCreateWithPriority",
                                         "cuGraphInstantiate",
                                         "cuGraphInstantiateWithFlags",
                                         "cuGraphInstantiateWithParams",
                                         "cuGraphLaunch",
                                         "cuMulticastCreate",
                                         "cuMulticastBindAddr",
                                         "cuMulticastBindMem",
                                         "cuLogicalEndpointCreate",
                                         "cuLogicalEndpointBindAddr",
                                         "cuLogicalEndpointBindMem"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

struct Unit {
  std::string_view suffix;
  uint64_t factor;
};

// A count and its unit: the first whose suffix fits.
template <size_t N>
std::optional<uint64_t> measured(std::string_view text, const Unit (&units)[N]) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.suffix)) continue;
    const auto count = number<uint64_t>(text.substr(0, text.size() - unit.suffix.size()));
    if (count) return *count * unit.factor;
  }
  return std::nullopt;
}

constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}};
constexpr Unit kSizes[] = {{"KB", uint64_t{1} << 10}, {"MB", uint64_t{1} << 20}};

struct Halves {
  std::string_view left;
  std::string_view right;
};

std::optional<Halves> halves(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  return Halves{text.substr(0, at), text.substr(at + 1)};
}

// "p0.01@7": each use fails with this probability, drawn with this seed.
bool read_probability(std::string_view text, FailRule& rule) {
  const auto parts = halves(text.substr(1), '@');
  if (!parts) return false;
  const auto probability = number<double>(parts->left);
  const auto seed = number<uint64_t>(parts->right);
  if (!probability || !seed || !(*probability > 0 && *probability <= 1)) return false;
  rule.probability = *probability;
  rule.seed = *seed;
  return true;
}

// One word after the call's name: when it fails, or how.
bool read_word(std::string_view word, FailRule& rule) {
  if (word == "every") return true;
  if (word == "after") return rule.after_work = true;
  if (word.starts_with('p')) return read_probability(word, rule);
  const auto nth = number<uint64_t>(word);
  if (!nth || *nth == 0) return false;
  rule.nth = *nth;
  return true;
}

// When a device is lost: "calls", or "call@n".
bool read_moment(std::string_view text, LoseRule& rule) {
  const auto parts = halves(text, '@');
  const auto count = number<uint64_t>(parts ? parts->right : text);
  if (!count) return false;
  if (!parts) {
    rule.after = *count;
    return true;
  }
  rule.call = parts->left;
  rule.nth = *count;
  return *count != 0 && known_call(parts->left);
}

}  // namespace

bool add_fail(std::string_view text, FaultRules& rules) {
  const auto parts = halves(text, '=');
  if (!parts) return false;
  FailRule rule;
  const auto code = find_error(parts->right);
  const auto words = split(parts->left, ':');
  if (!code || !known_call(words[0])) return false;
  rule.call = words[0];
  rule.code = *code;
  for (size_t i = 1; i < words.size(); ++i) {
    if (!read_word(words[i], rule)) return false;
  }
  rules.fail.push_back(std::move(rule));
  return true;
}

bool add_latency(std::string_view text, FaultRules& rules) {
  const auto parts = halves(text, '=');
  const auto ns = parts ? measured(parts->right, kTimes) : std::nullopt;
  if (!ns) return false;
  const auto words = split(parts->left, ':');
  const bool after = words.size() == 2 && words[1] == "after";
  if (!known_call(words[0]) || words.size() != (after ? 2 : 1)) return false;
  rules.latency.push_back({std::string(words[0]), *ns, after});
  return true;
}

bool add_take(std::string_view text, FaultRules& rules) {
  const auto parts = halves(text, '=');
  const auto bytes = parts ? measured(parts->right, kSizes) : std::nullopt;
  if (!bytes || !takes_memory(parts->left)) return false;
  rules.takes.push_back({std::string(parts->left), *bytes});
  return true;
}

bool add_pressure(std::string_view text, FaultRules& rules) {
  const auto words = split(text, ':');
  if (words.size() != 4) return false;
  const auto device = number<int>(words[0]);
  const auto megabytes = number<uint64_t>(words[1]);
  const auto from = number<uint64_t>(words[2]);
  const auto to = number<uint64_t>(words[3]);
  if (!device || !megabytes || !from || !to || *device < 0 || *from >= *to) return false;
  rules.pressure.push_back({*device, *megabytes << 20, *from, *to});
  return true;
}

bool add_lose(std::string_view text, FaultRules& rules) {
  const auto words = split(text, ':');
  if (words.size() < 2 || words.size() > 3) return false;
  const auto device = number<int>(words[0]);
  const auto code = words.size() == 3 ? find_error(words[2]) : CUDA_ERROR_LAUNCH_FAILED;
  if (!device || !code || *device < 0) return false;
  LoseRule rule;
  rule.device = *device;
  rule.code = *code;
  return read_moment(words[1], rule) && (rules.lose.push_back(std::move(rule)), true);
}

}  // namespace simcuda
