// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/origins.h"

#include "allocator/record/tool/functions.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::plan {

uint32_t Origins::number(const Event& allocation) {
  const auto [found, is_new] =
      numbers_.try_emplace({allocation.range, allocation.site}, static_cast<uint32_t>(all_.size()));
  if (is_new) all_.push_back(find(allocation.range, allocation.site));
  return found->second;
}

Origin Origins::find(uint32_t range, uint32_t site) const {
  Origin origin;
  origin.text = recording_.range(range);
  if (origin.text.empty()) origin.text = tool::site_text(recording_, site);
  if (!every_name_) return origin;
  add_ranges(range, origin.names);
  for (const Frame& frame : recording_.sites[site]) add_frame(frame, origin.names);
  return origin;
}

// A domain's range is "domain/message"; the message alone counts, too.
void Origins::add_ranges(uint32_t range, std::vector<std::string>& names) const {
  for (; range != 0; range = recording_.ranges[range].parent) {
    const std::string& name = recording_.names[recording_.ranges[range].name];
    names.push_back(name);
    const size_t slash = name.find('/');
    if (slash != std::string::npos) names.push_back(name.substr(slash + 1));
  }
}

// A file counts with its path and without.
void Origins::add_frame(const Frame& frame, std::vector<std::string>& names) const {
  const std::string& path = recording_.names[frame.file];
  names.push_back(path);
  names.push_back(path.substr(path.rfind('/') + 1));
  names.push_back(frame.python() ? recording_.names[frame.function]
                                 : tool::function_at(path, frame.offset).name);
}

}  // namespace cistern::alloc::plan
