// SPDX-License-Identifier: Apache-2.0
#include "table/proc_address.h"

#include <string_view>
#include <unordered_map>
#include <vector>

namespace simcuda {
namespace {

using Variants = std::unordered_map<std::string_view, std::vector<const CallInfo*>>;

// A test's driver that lacks a function has it under another name (tests/preload/run-pair).
bool exported(const CallInfo& call) { return std::string_view(call.symbol).starts_with("cu"); }

// Built once and leaked: look-ups may come from destructors that run after main.
const Variants& variants() {
  static const Variants& all = *[] {
    auto* map = new Variants;
    for (const CallTable& table : {simulated_calls(), unsupported_calls()}) {
      for (const CallInfo& call : table) {
        if (exported(call)) (*map)[call.name].push_back(&call);
      }
    }
    return map;
  }();
  return all;
}

// The newest variant the caller can know; at equal version the per-thread one where it is wanted.
bool better(const CallInfo& candidate, const CallInfo* best) {
  if (best == nullptr) return true;
  if (per_thread(candidate.kind) != per_thread(best->kind)) return per_thread(candidate.kind);
  return candidate.version > best->version;
}

}  // namespace

ProcAddress find_proc_address(const char* name, int version, bool want_per_thread) {
  const auto found = variants().find(name);
  if (found == variants().end()) return {nullptr, false};
  const CallInfo* best = nullptr;
  for (const CallInfo* call : found->second) {
    if (call->version > version) continue;
    if (per_thread(call->kind) && !want_per_thread) continue;
    if (better(*call, best)) best = call;
  }
  return {best, true};
}

}  // namespace simcuda
