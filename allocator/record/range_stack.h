// SPDX-License-Identifier: Apache-2.0
// The ranges in which one thread is, innermost last: those that were pushed and not popped, and
// those that were started and not ended. Pushed ranges nest in each domain by itself, and started
// ones end in any order. What does not fit is counted, so that each pop still takes what its push
// put. Plain data, all zero at first; the caller's lock.
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct RangeStack {
  static constexpr unsigned kMostDeep = 256;
  static constexpr unsigned kMostDomains = 64;  // in which something is pushed
  // Of push and pop, as NVTX has them.
  static constexpr int kNothingPushed = -1, kNotTracked = -2;

  struct Entry {
    uint32_t range;
    uint32_t domain;
    uint64_t start;  // identifies a range that was started; 0: it was pushed
    uint64_t phase;  // what the caller keeps with it
  };

  // What the thread is in; 0: in none.
  uint32_t range() const { return depth == 0 ? 0 : entries[depth - 1].range; }

  // Whether the next range of `domain` has its place. If not, it need not be known.
  bool has_room(uint32_t domain) const;

  // Push: the level of the new range in its domain, the outermost is 0. `entry` counts only where
  // has_room() says so.
  int push(const Entry& entry);
  struct Popped {
    int level;  // or kNothingPushed
    bool was_kept;
    Entry entry;
  };
  Popped pop(uint32_t domain);

  // Start and end. False: no room, and not there.
  bool start(const Entry& entry);
  bool end(uint64_t start, Entry* out);

  // Takes one range of a domain that is no more. False: there is none left.
  bool end_of_domain(uint32_t domain, Entry* out);

  struct Domain {
    uint32_t name;
    uint32_t pushed;  // and not popped
    uint32_t beyond;  // the last of those: they had no room
  };

  // Public so that all is zero without a constructor.
  Entry entries[kMostDeep];
  unsigned depth;
  Domain domains[kMostDomains];
  unsigned domains_used;

 private:
  Domain* find(uint32_t domain);
  void take_out(unsigned index, Entry* out);
};

}  // namespace cistern::alloc
