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
  uint64_t large = 8;            // of a hundred blocks, how many have 1 MiB or more; 100: all
  uint64_t global = 1;           // captures in global mode, too
  uint64_t contexts = 1;         // how often a thread begins or ends one of its own
  uint64_t captures = 3;         // how often work is captured and launched as a graph
  uint64_t losses = 0;           // how often a stream is destroyed while another one captures
  uint64_t exports = 0;          // how often a block is made known to other processes
  uint64_t shortages = 1;        // how often more is asked for than there is
  uint64_t all = 1;              // whether what is said to be free is sometimes taken, all of it
  uint64_t stream_ordered = 10;  // of a hundred blocks, how many come from cuMemAllocAsync
  uint64_t scratch = 0;          // how often a stream gets memory for a moment, twice in a row
  uint64_t pinned = 0;           // how often pinned memory comes or goes
  uint64_t slow = 0;             // of a hundred kernels that write, how many take their time
  uint64_t endless = 0;          // how often work is begun that ends when the thread says so
  uint64_t peers = 1;            // which devices reach which: 0 none, 1 all, 2 each those after it
  uint64_t peer_turns = 0;       // how often that changes
  uint64_t forms = 0;            // whether devices copy to each other by every call there is
  uint64_t graphs = 0;           // how many executable graphs a thread keeps, and renews in turn
  uint64_t marks = 0;            // how often a thread says that a graph of its own begins or ends
  uint64_t cancelled = 0;        // how often a thread's helper is cancelled, and another begun
  uint64_t rests = 0;     // whether the program rests between rounds, until idle memory goes back
  uint64_t relies = 0;    // of a hundred accesses behind a free, how many rely on its order
  uint64_t must_fit = 0;  // whether a refused block ends the program

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
                 {"captures", &captures},
                 {"losses", &losses},
                 {"exports", &exports},
                 {"shortages", &shortages},
                 {"stream_ordered", &stream_ordered},
                 {"scratch", &scratch},
                 {"all", &all},
                 {"pinned", &pinned},
                 {"slow", &slow},
                 {"endless", &endless},
                 {"peers", &peers},
                 {"peer_turns", &peer_turns},
                 {"forms", &forms},
                 {"graphs", &graphs},
                 {"marks", &marks},
                 {"cancelled", &cancelled},
                 {"rests", &rests},
                 {"relies", &relies},
                 {"must_fit", &must_fit}};
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
