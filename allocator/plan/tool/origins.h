// SPDX-License-Identifier: Apache-2.0
// The origins of a recording's blocks: for the log of reuse, and for blocks that are not to be
// reused. Requests of one range and one call site have one origin.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "allocator/record/tool/reader.h"

namespace cistern::alloc::plan {

struct Origin {
  std::string text;                // its range, or where it has none its call site
  std::vector<std::string> names;  // all that a glob may mean, as in CISTERN_SKIP_OPT_SET
};

class Origins {
 public:
  // `every_name`: else there is only the text. Names of functions are read from files.
  Origins(const tool::Recording& recording, bool every_name)
      : recording_(recording), every_name_(every_name) {}

  // The number of an allocation's origin in all().
  uint32_t number(const Event& allocation);
  std::vector<Origin>& all() { return all_; }

 private:
  Origin find(uint32_t range, uint32_t site) const;
  void add_ranges(uint32_t range, std::vector<std::string>& names) const;
  void add_frame(const Frame& frame, std::vector<std::string>& names) const;

  const tool::Recording& recording_;
  const bool every_name_;
  std::vector<Origin> all_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers_;
};

}  // namespace cistern::alloc::plan
