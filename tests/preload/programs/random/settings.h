// SPDX-License-Identifier: Apache-2.0
// What a run of the random program is made from: numbers on the command line, name=number.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace random_work {

struct Settings {
  uint64_t seed = 1;
  uint64_t operations = 1000;  // of all threads and rounds together
  uint64_t threads = 1;
  uint64_t devices = 1;
  uint64_t rounds = 4;           // between two, everything is given back and counted
  uint64_t live_mb = 64;         // the most that one thread holds on one device
  uint64_t most_mb = 16;         // the largest block
  uint64_t large = 8;            // of a hundred blocks, how many have more than 1 MiB
  uint64_t global = 1;           // captures in global mode, too
  uint64_t contexts = 1;         // how often a thread begins or ends one of its own
  uint64_t shortages = 1;        // how often more is asked for than there is
  uint64_t all = 1;              // whether what is said to be free is sometimes taken, all of it
  uint64_t stream_ordered = 10;  // of a hundred blocks, how many come from cuMemAllocAsync

  bool read(const char* argument) {
    const struct {
      const char* name;
      uint64_t* value;
    } known[] = {{"seed", &seed},
                 {"operations", &operations},
                 {"threads", &threads},
                 {"devices", &devices},
                 {"rounds", &rounds},
                 {"live_mb", &live_mb},
                 {"most_mb", &most_mb},
                 {"global", &global},
                 {"large", &large},
                 {"contexts", &contexts},
                 {"shortages", &shortages},
                 {"stream_ordered", &stream_ordered},
                 {"all", &all}};
    const char* equals = std::strchr(argument, '=');
    if (equals == nullptr) return false;
    for (const auto& setting : known) {
      const auto length = static_cast<size_t>(equals - argument);
      if (std::strlen(setting.name) != length ||
          std::strncmp(setting.name, argument, length) != 0) {
        continue;
      }
      *setting.value = std::strtoull(equals + 1, nullptr, 10);
      return true;
    }
    return false;
  }
};

// The same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  bool percent(uint64_t chance) { return below(100) < chance; }

 private:
  uint64_t state_;
};

}  // namespace random_work
