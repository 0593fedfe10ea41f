// SPDX-License-Identifier: Apache-2.0
// What cistern trace is told by its arguments, and what it says of those that it cannot use.
#include "allocator/record/tool/analysis.h"

#include <vector>

#include "tests/catch.h"

namespace options_test {

using namespace cistern::alloc::tool;

namespace {

struct Read {
  explicit Read(std::vector<std::string> words) {
    std::vector<char*> given;
    for (std::string& word : words) given.push_back(word.data());
    fine = read_options(static_cast<int>(given.size()), given.data(), options, problem);
  }
  bool fine;
  Options options;
  std::string problem;
};

}  // namespace

TEST_CASE("trace: an option that cannot be used is told with what is allowed, and an example") {
  struct Row {
    const char *name, *value, *allowed, *example;
  };
  const Row rows[] = {
      {"by", "colour", "site, range, phase, thread", "site"},
      {"sort", "down", "peak, end, temporary, calls, bytes", "peak"},
      {"top", "all", "a number", "1"},
      {"thread", "-1", "a number", "1"},
      {"device", "4K", "a number", "1"},
      {"min-bytes", "4X", "bytes, also with K, M or G", "1M"},
      {"max-bytes", "", "bytes, also with K, M or G", "1M"},
      {"from", "soon", "seconds since it began", "2.5"},
      {"to", "-1", "seconds since it began", "2.5"},
      {"to", "1e10", "seconds since it began", "2.5"},
  };
  for (const Row& row : rows) {
    const std::string option = std::string("--") + row.name;
    CHECK(Read({"file", option, row.value}).problem ==
          option + " cannot be used; value seen \"" + row.value + "\"; allowed: " + row.allowed +
              "; try: " + option + " " + row.example);
  }
}

TEST_CASE("trace: words that are no option, or too many or few, are told") {
  CHECK(Read({"one", "two"}).problem ==
        "more than one file; value seen \"two\"; allowed: one recording; try: cistern help");
  CHECK(Read({"--colour"}).problem ==
        "unknown option; value seen \"--colour\"; allowed: the options that the help lists; "
        "try: cistern help");
  CHECK(Read({"one", "--top"}).problem ==
        "an option without its value; value seen \"--top\"; allowed: --top VALUE; "
        "try: cistern help");
  CHECK(Read({}).problem ==
        "no recording given; value seen \"\"; allowed: cistern trace FILE [OPTION...]; "
        "try: cistern help");
  CHECK(Read({"--", "--top"}).options.file == "--top");
}

TEST_CASE("trace: the last view counts; events and JSON together are one of their own") {
  const auto view = [](std::vector<std::string> words) {
    words.push_back("file");
    return Read(words).options.view;
  };
  CHECK(view({}) == View::summary);
  CHECK(view({"--events"}) == View::events);
  CHECK(view({"--csv", "--json"}) == View::json);
  CHECK(view({"--events", "--json"}) == View::json_events);
  CHECK(view({"--json", "--events"}) == View::json_events);
  CHECK(view({"--json", "--events", "--csv"}) == View::csv);
  CHECK(view({"--json", "--json"}) == View::json);
}

TEST_CASE("trace: numbers of bytes may have a unit, times are in seconds") {
  const Read read({"--min-bytes=3K", "file", "--max-bytes", "2G", "--from", "0.5", "--to=2e3"});
  REQUIRE(read.fine);
  CHECK(read.options.file == "file");
  CHECK(read.options.min_bytes == 3 << 10);
  CHECK(read.options.max_bytes == uint64_t{2} << 30);
  CHECK(read.options.from_ns == 500'000'000);
  CHECK(read.options.to_ns == uint64_t{2'000} * 1'000'000'000);
}

}  // namespace options_test
