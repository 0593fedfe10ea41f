// SPDX-License-Identifier: Apache-2.0
// Tables of comma-separated values with a header: cells without quotes, as lifetimes and traces
// have them. A Table refers to the text it was made of.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace cistern::alloc::plan {

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

}  // namespace cistern::alloc::plan
