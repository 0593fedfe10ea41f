// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/tool.h"

#include <algorithm>
#include <map>

#include "allocator/record/event.h"
#include "allocator/record/tool/functions.h"
#include "allocator/record/tool/lives.h"
#include "allocator/record/tool/reader.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::plan {
namespace {

// The ids of a table are the names of its blocks.
void name_by_ids(Input& out) {
  for (const std::string& id : out.ids) {
    out.origins.push_back(static_cast<uint32_t>(out.known.size()));
    out.known.push_back({.text = id, .names = {id}});
  }
}

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

bool read_recorded(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                   std::string& problem) {
  const auto recording = tool::read_recording(file, problem);
  if (!recording) return false;
  const tool::Lives lives = tool::lives_of(*recording);
  const auto event_of = [&](size_t block) {
    return recording->events[lives.blocks[block].allocated];
  };
  uint64_t device = wanted.device.value_or(UINT64_MAX);
  for (size_t i = 0; i < lives.blocks.size() && !wanted.device; ++i) {
    if (event_of(i).memory == wanted.memory)
      device = std::min<uint64_t>(device, event_of(i).device);
  }
  out.device = static_cast<uint32_t>(device);
  Origins origins(*recording, wanted.skip.by_name());
  std::vector<size_t> number(lives.blocks.size());
  uint64_t calls = 0;
  for (const tool::Step& step : lives.steps) {
    const Event event = event_of(step.block);
    if (event.memory != wanted.memory || event.device != device || event.bytes == 0) continue;
    if (!lives.begins(step)) {
      out.lives[number[step.block]].to = calls++;
      continue;
    }
    number[step.block] = out.lives.size();
    out.lives.push_back({.from = calls++, .to = kNeverFreed, .bytes = event.bytes});
    out.streams.push_back(event.stream);
    out.threads.push_back(event.thread);
    if (wanted.origins()) out.origins.push_back(origins.number(event));
  }
  out.known = std::move(origins.all());
  end_lives(out, calls);
  return true;
}

}  // namespace

void end_lives(Input& out, uint64_t calls) {
  out.calls = calls;
  for (Lifetime& life : out.lives) {
    if (life.to == kNeverFreed) life.to = calls;
  }
}

bool read_input(std::span<const uint8_t> file, const Wanted& wanted, Input& out,
                std::string& problem) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  bool read = false;
  if (text.starts_with(std::string_view(kRecordingMagic, sizeof kRecordingMagic))) {
    out.counts_calls = true;
    read = read_recorded(file, wanted, out, problem);
  } else {
    read = read_table(text, out, problem);
    if (wanted.origins()) name_by_ids(out);
  }
  if (read && out.lives.empty()) {
    problem =
        "nothing to plan; value seen \"0 allocations\"; allowed: one or more; try: cistern trace "
        "FILE";
  }
  return read && problem.empty();
}

}  // namespace cistern::alloc::plan
