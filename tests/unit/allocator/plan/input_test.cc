// SPDX-License-Identifier: Apache-2.0
// What `cistern plan` reads and writes: tables, traces and recordings, and lines about those that
// make no sense.
#include "allocator/plan/tool/tool.h"

#include <string>

#include "allocator/plan/plan_file.h"
#include "tests/catch.h"
#include "tests/unit/allocator/record/written.h"

namespace cistern::alloc::plan::input_test {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Input read(const std::string& text) {
  Input input;
  std::string problem;
  REQUIRE((read_input(bytes_of(text), {}, input, problem) && problem.empty()));
  return input;
}

TEST_CASE("plan input: columns of a table in any order, under any of their names", "[plan]") {
  for (const char* text : {"id,lower,upper,size\na,1,5,7\nb,2,3,9\n",
                           "size, upper ,id,lower\r\n7,5,a,1\r\n\r\n9,3,b,2",
                           "buffer,start,end,size\na,1,4,7\nb,2,2,9\n"}) {
    CAPTURE(text);
    const Input input = read(text);
    REQUIRE(input.lives.size() == 2);
    CHECK(input.ids == std::vector<std::string>{"a", "b"});
    CHECK((input.lives[0].from == 1 && input.lives[0].to == 5 && input.lives[0].bytes == 7));
    CHECK((input.lives[1].from == 2 && input.lives[1].to == 3 && input.lives[1].bytes == 9));
  }
}

TEST_CASE("plan input: a trace counts in calls", "[plan]") {
  const Input input = read(
      "time_us,op,id,size,stream\n5,free,9,1,0\n5,alloc,0,100,0\n5,alloc,1,200,77\n5,free,0,100,"
      "0\n9,alloc,0,50,0\n");
  REQUIRE(input.lives.size() == 3);
  CHECK((input.lives[0].from == 0 && input.lives[0].to == 2));
  CHECK((input.lives[1].from == 1 && input.lives[1].to == 4));  // never freed
  CHECK((input.lives[2].from == 3 && input.lives[2].to == 4 && input.lives[2].bytes == 50));
  CHECK(input.streams == std::vector<uint64_t>{0, 77, 0});
}

TEST_CASE("plan input: of a recording one kind of memory on one device", "[plan]") {
  const auto file = alloc::test::written_recording(5, 2, 300);
  size_t planned = 0;
  for (int memory = 0; memory < kMemories; ++memory) {
    Input input;
    std::string problem;
    Wanted wanted;
    wanted.memory = static_cast<Memory>(memory);
    if (read_input(file, wanted, input, problem)) planned += input.lives.size();
    for (const Lifetime& life : input.lives) CHECK((life.from < life.to && life.to <= input.calls));
  }
  CHECK(planned > 0);
}

TEST_CASE("plan input: what makes no sense is refused with one line that shows it", "[plan]") {
  const std::string table = "id,lower,upper,size\n", trace = "time_us,op,id,size,stream\n";
  const struct {
    std::string text, said;
  } cases[] = {
      {"", "without the columns"},
      {"id,lower,size\n", "without the columns"},
      {std::string("\0\0", 2), "without the columns"},
      {table, "nothing to plan"},
      {table + "a,-1,2,3\n", "no number of lower; value seen \"-1\""},
      {table + "a,1,nan,3\n", "no number of upper; value seen \"nan\""},
      {table + "a,1,2,99999999999999999999\n", "no number of size"},
      {table + "a,1,2,4611686018427387905\n", "2^62"},
      {table + "a,1,2,3.5\n", "no number of size"},
      {table + "a,1,2,\n", "no number of size"},
      {table + "a,1,2,0\n", "without bytes"},
      {table + "a,2,2,1\n", "ends before it begins"},
      {table + "a,1,2,3\nb,1,2,3\na,4,5,6\n", "line 4: an id that was there before"},
      {table + "a,1,2\n", "another number of cells"},
      {"id,lower,upper,size,offset\na,1,2,3,x\n", "no number of offset"},
      {trace + "0,alloc,0,0,0\n", "without bytes"},
      {trace + "0,alloc,0,1,0\n0,alloc,0,1,0\n", "allocation of what is live"},
      {trace + "0,move,0,1,0\n", "unknown operation"},
      {trace + "0,free,0,1,0\n", "nothing to plan"},
      {"op,id\n", "without its columns"},
      {"CISTREC\n", "recording"},
  };
  for (const auto& one : cases) {
    CAPTURE(one.text, one.said);
    Input input;
    std::string problem;
    CHECK_FALSE(read_input(bytes_of(one.text), {}, input, problem));
    CHECK(problem.find(one.said) != std::string::npos);
    CHECK(problem.find('\n') == std::string::npos);
  }
}

TEST_CASE("plan output: what is written can be read", "[plan]") {
  const Input input = read(
      "time_us,op,id,size,stream\n0,alloc,0,100,0\n0,alloc,1,200,77\n0,free,0,1,0\n0,alloc,2,90,"
      "8\n");
  Problem problem;
  REQUIRE(problem.build(input.lives, 4) == Built::yes);
  const std::vector<uint64_t> offsets = {0, 100, 0};
  const Result result = {input, problem, offsets, 300, 4};
  const std::string file = plan_text(result);
  Plan plan;
  REQUIRE(plan.read(bytes_of(file)).what == nullptr);
  CHECK((plan.head().requests == 3 && plan.head().calls == 4 && plan.head().bytes == 300));
  const PlannedRequest first = plan.request(0), last = plan.request(2);
  CHECK((first.bytes == 100 && first.allocated == 0 && first.freed == 2 && first.stream == 0));
  CHECK((last.bytes == 90 && last.allocated == 3 && last.freed == 4 && last.stream == 2));
  const Input table = read(table_text(result));
  CHECK((table.offsets == offsets && table.lives.size() == 3));
  CHECK(picture_text(result).find("lower bound 300 bytes") != std::string::npos);
}

}  // namespace
}  // namespace cistern::alloc::plan::input_test
