// SPDX-License-Identifier: Apache-2.0
// Files as the input of a plan: recordings; and traces and tables of lifetimes, as comma-separated
// values with a header.
#include "allocator/plan/tool/tool.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "allocator/record/event.h"
#include "allocator/record/tool/functions.h"
#include "allocator/record/tool/recording.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kMostNumber = uint64_t{1} << 62;

// A block that nothing frees lives to the end, after the last call: end_lives() gives it that end.
constexpr uint64_t kNeverFreed = UINT64_MAX;

void end_lives(Input& out, uint64_t calls) {
  out.calls = calls;
  for (Lifetime& life : out.lives) {
    if (life.to == kNeverFreed) life.to = calls;
  }
}

std::string_view trimmed(std::string_view cell) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t from = cell.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return cell.substr(from, cell.find_last_not_of(kBlanks) - from + 1);
}

// A table: cells without quotes, as lifetimes and traces have them. It refers to the text it was
// made of.
class Table {
 public:
  // Reads the header.
  explicit Table(std::string_view text);

  // The place of the first of these names in the header, or -1.
  int column(std::initializer_list<std::string_view> names) const;
  // Goes on to the next line that is not empty. False at the end, or if the line is wrong; then
  // `problem` has a line of text.
  bool next(std::string& problem);

  size_t line() const { return line_; }
  // An upper limit on the lines that are left.
  size_t lines_left() const;
  std::string_view cell(int column) const { return cells_[static_cast<size_t>(column)]; }
  // False with a line in `problem` if the cell is no whole number from 0 to 2^62.
  bool number(int column, uint64_t& out, std::string& problem) const;
  // A line of text: what is wrong in this line, the cell seen, and what is allowed.
  std::string refused(const std::string& what, std::string_view seen,
                      const std::string& allowed) const;

 private:
  bool read_line();

  std::string_view rest_;
  size_t line_ = 0;
  std::vector<std::string_view> header_, cells_;
};

Table::Table(std::string_view text) : rest_(text) {
  read_line();
  header_.swap(cells_);
}

size_t Table::lines_left() const {
  constexpr size_t kShortest = sizeof "1,0,1,1";  // blank lines are no rows
  const auto ends = static_cast<size_t>(std::count(rest_.begin(), rest_.end(), '\n'));
  return std::min(ends, rest_.size() / kShortest) + 1;
}

// The cells of the next line; false at the end of the text.
bool Table::read_line() {
  cells_.clear();
  if (rest_.empty()) return false;
  ++line_;
  const size_t end = rest_.find('\n');
  std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (trimmed(line).empty()) return true;
  for (;;) {
    const size_t comma = line.find(',');
    cells_.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return true;
    line.remove_prefix(comma + 1);
  }
}

int Table::column(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const auto found = std::find(header_.begin(), header_.end(), name);
    if (found != header_.end()) return static_cast<int>(found - header_.begin());
  }
  return -1;
}

bool Table::next(std::string& problem) {
  while (read_line()) {
    if (cells_.empty()) continue;
    if (cells_.size() == header_.size()) return true;
    problem = refused("a line with another number of cells than the header",
                      std::to_string(cells_.size()), std::to_string(header_.size()));
    return false;
  }
  return false;
}

bool Table::number(int column, uint64_t& out, std::string& problem) const {
  const std::string_view text = cell(column);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size() && out <= kMostNumber) return true;
  problem = refused("no number of " + std::string(header_[static_cast<size_t>(column)]), text,
                    "a whole number from 0 to 2^62");
  return false;
}

std::string Table::refused(const std::string& what, std::string_view seen,
                           const std::string& allowed) const {
  constexpr size_t kMostShown = 40;
  return "line " + std::to_string(line_) + ": " + what + "; value seen \"" +
         std::string(seen.substr(0, kMostShown)) + "\"; allowed: " + allowed +
         "; try: cistern help";
}

// Reads the rows of a table.
class Reader {
 public:
  Reader(Table& table, Input& out, std::string& problem)
      : table_(table), out_(out), problem_(problem) {}

 protected:
  bool refuse(const char* what, int column, const char* allowed) {
    problem_ = table_.refused(what, table_.cell(column), allowed);
    return false;
  }

  Table& table_;
  Input& out_;
  std::string& problem_;
};

class Lifetimes : Reader {
 public:
  using Reader::Reader;

  bool read() {
    id_ = table_.column({"id", "buffer", "buffer_id"});
    from_ = table_.column({"lower", "start", "begin"});
    to_ = table_.column({"upper", "end"});
    size_ = table_.column({"size"});
    offset_ = table_.column({"offset"});
    last_is_inside_ = table_.column({"upper"}) < 0;
    if (id_ < 0 || from_ < 0 || to_ < 0 || size_ < 0) {
      problem_ =
          table_.refused("a table without the columns of lifetimes", "", "id,lower,upper,size");
      return false;
    }
    const size_t lines = table_.lines_left();
    out_.lives.reserve(lines);
    out_.ids.reserve(lines);
    seen_.reserve(lines);
    while (problem_.empty() && table_.next(problem_)) read_row();
    return problem_.empty();
  }

 private:
  bool read_row() {
    Lifetime life;
    uint64_t offset = 0;
    if (!table_.number(from_, life.from, problem_) || !table_.number(to_, life.to, problem_) ||
        !table_.number(size_, life.bytes, problem_) ||
        (offset_ >= 0 && !table_.number(offset_, offset, problem_))) {
      return false;
    }
    life.to += last_is_inside_;
    if (life.to <= life.from) return refuse("a lifetime that ends before it begins", to_, "later");
    if (life.bytes == 0) return refuse("a block without bytes", size_, "1 and more");
    if (!seen_.insert(table_.cell(id_)).second) {
      return refuse("an id that was there before", id_, "another one in each line");
    }
    out_.lives.push_back(life);
    out_.ids.emplace_back(table_.cell(id_));
    if (offset_ >= 0) out_.offsets.push_back(offset);
    return true;
  }

  int id_ = -1, from_ = -1, to_ = -1, size_ = -1, offset_ = -1;
  bool last_is_inside_ = false;
  std::unordered_set<std::string_view> seen_;
};

class Calls : Reader {
 public:
  using Reader::Reader;

  bool read() {
    op_ = table_.column({"op"});
    id_ = table_.column({"id"});
    size_ = table_.column({"size"});
    stream_ = table_.column({"stream"});
    if (id_ < 0 || size_ < 0 || stream_ < 0) {
      problem_ = table_.refused("a trace without its columns", "", "time_us,op,id,size,stream");
      return false;
    }
    while (problem_.empty() && table_.next(problem_)) read_row();
    end_lives(out_, calls_);
    return problem_.empty();
  }

 private:
  bool read_row() {
    uint64_t bytes = 0, stream = 0;
    if (!table_.number(size_, bytes, problem_) || !table_.number(stream_, stream, problem_)) {
      return false;
    }
    if (table_.cell(op_) == "free") return read_free();
    if (table_.cell(op_) != "alloc") return refuse("an unknown operation", op_, "alloc or free");
    if (bytes == 0) return refuse("a block without bytes", size_, "1 and more");
    if (!live_.try_emplace(table_.cell(id_), out_.lives.size()).second) {
      return refuse("an allocation of what is live", id_, "an id that is free");
    }
    out_.lives.push_back({.from = calls_++, .to = kNeverFreed, .bytes = bytes});
    out_.streams.push_back(stream);
    return true;
  }

  // What was allocated before the trace began is no block of the plan.
  bool read_free() {
    const auto found = live_.find(table_.cell(id_));
    if (found == live_.end()) return true;
    out_.lives[found->second].to = calls_++;
    live_.erase(found);
    return true;
  }

  int op_ = -1, id_ = -1, size_ = -1, stream_ = -1;
  uint64_t calls_ = 0;
  std::unordered_map<std::string_view, size_t> live_;
};

// Traces and tables of lifetimes. False after one line in `problem`.
bool read_table(std::string_view text, Input& out, std::string& problem) {
  Table table(text);
  out.counts_calls = table.column({"op"}) >= 0;
  return out.counts_calls ? Calls(table, out, problem).read()
                          : Lifetimes(table, out, problem).read();
}

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
