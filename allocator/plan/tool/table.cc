// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/tool/table.h"

#include <algorithm>
#include <charconv>

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kMostNumber = uint64_t{1} << 62;

std::string_view trimmed(std::string_view cell) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t from = cell.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return cell.substr(from, cell.find_last_not_of(kBlanks) - from + 1);
}

}  // namespace

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

}  // namespace cistern::alloc::plan
