// SPDX-License-Identifier: Apache-2.0
// What the simulated driver has given out, read from its trace: what a pool holds is nowhere else
// to be seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <unordered_map>

struct DriverMemory {
  uint64_t held = 0, most = 0;  // bytes, also of physical handles: now, and at most
  uint64_t marks = 0;           // events recorded, of a stream or of a whole context
};

// The process's calls so far, of all devices.
inline DriverMemory driver_memory() {
  DriverMemory memory;
  struct Block {
    uint64_t bytes = 0;
    int frees_to_come = 0;
  };
  std::unordered_map<std::string, Block> blocks;
  const auto value = [](const std::string& line, const char* name) {
    const size_t at = line.find(name);
    return at == line.npos ? std::string() : line.substr(at, line.find(' ', at) - at);
  };
  const auto number = [](const std::string& text) {
    return std::strtoull(text.c_str() + text.find('=') + 1, nullptr, 10);
  };
  std::ifstream file(std::getenv("SIMCUDA_TRACE"));
  for (std::string line; std::getline(file, line);) {
    if (line.find(" -> 0 ") == line.npos) continue;
    const std::string call = line.substr(0, line.find(' '));
    const bool handle = call == "cuMemCreate" || call == "cuMemRelease";
    const std::string address = value(line, handle ? "handle=" : "dptr=");
    if (call == "cuMemAlloc_v2" || call == "cuMemCreate") {
      Block& block = blocks[address];
      // Lines appear as calls return: the free that made room here may come later.
      if (block.bytes != 0) ++block.frees_to_come;
      memory.held -= block.bytes;
      block.bytes = number(value(line, handle ? "size=" : "bytesize="));
      memory.held += block.bytes;
      memory.most = std::max(memory.most, memory.held);
    } else if (call.starts_with("cuMemFree") || call == "cuMemRelease") {
      const auto found = blocks.find(address);
      if (found == blocks.end()) continue;
      Block& block = found->second;
      if (block.frees_to_come != 0) {
        --block.frees_to_come;
        continue;
      }
      memory.held -= block.bytes;
      block.bytes = 0;
    } else if (call.starts_with("cuEventRecord") || call == "cuCtxRecordEvent") {
      ++memory.marks;
    }
  }
  return memory;
}

// How many bytes of the device a program has ever been given, wherever they lay.
class Spread {
 public:
  void add(uint64_t address, uint64_t bytes) {
    uint64_t begin = address, end = address + bytes;
    for (auto at = ranges_.upper_bound(begin); at != ranges_.begin();) {
      if (--at; at->second < begin) break;
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    for (auto at = ranges_.lower_bound(begin); at != ranges_.end() && at->first <= end;) {
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    ranges_[begin] = end;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [begin, end] : ranges_) sum += end - begin;
    return sum;
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;
};
