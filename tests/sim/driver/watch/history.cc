// SPDX-License-Identifier: Apache-2.0
#include "watch/history.h"

#include <cinttypes>
#include <cstdio>
#include <utility>

namespace simcuda {
namespace {

constexpr int kLinesOfPast = 4;

bool overlap(const Life& life, uint64_t address, uint64_t bytes) {
  return life.address < address + bytes && address < life.address + life.bytes;
}

const char* name_of(const std::optional<Call>& call) { return call ? info(*call).symbol : "pool"; }

void add_line(const Life& life, const char* kind, std::string& text) {
  char line[300];
  std::snprintf(line, sizeof line, "  %s: 0x%" PRIx64 "+%" PRIu64 " begun by %s #%" PRIu64, kind,
                life.address, life.bytes, name_of(life.begun_by), life.begun);
  text += line;
  if (life.ended == 0) {
    text += ", lives\n";
    return;
  }
  std::snprintf(line, sizeof line, ", ended by %s #%" PRIu64 "\n", name_of(life.ended_by),
                life.ended);
  text += line;
}

}  // namespace

Life& Lives::begin(const Life& life) { return live_[life.address] = life; }

Life* Lives::at(uint64_t address) {
  const auto found = live_.find(address);
  return found == live_.end() ? nullptr : &found->second;
}

const Life* Lives::holding(uint64_t address) const {
  const auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  const Life& before = std::prev(after)->second;
  return before.holds(address) ? &before : nullptr;
}

Life* Lives::holding(uint64_t address) {
  return const_cast<Life*>(std::as_const(*this).holding(address));
}

bool Lives::end(uint64_t address, std::optional<Call> by, uint64_t number) {
  const auto found = live_.find(address);
  if (found == live_.end()) return false;
  Life& life = ended_.emplace_back(found->second);
  live_.erase(found);
  life.ended = number;
  life.ended_by = by;
  if (ended_.size() > kRemembered) ended_.pop_front();
  return true;
}

const Life* Lives::ended_holding(uint64_t address) const {
  for (auto life = ended_.rbegin(); life != ended_.rend(); ++life) {
    if (life->holds(address)) return &*life;
  }
  return nullptr;
}

void Lives::describe(uint64_t address, uint64_t bytes, const char* kind, std::string& text) const {
  for (const auto& [start, life] : live_) {
    if (overlap(life, address, bytes)) add_line(life, kind, text);
  }
  int lines = 0;
  for (auto life = ended_.rbegin(); life != ended_.rend() && lines < kLinesOfPast; ++life) {
    if (!overlap(*life, address, bytes)) continue;
    add_line(*life, kind, text);
    ++lines;
  }
}

}  // namespace simcuda
