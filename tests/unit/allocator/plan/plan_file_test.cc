// SPDX-License-Identifier: Apache-2.0
// A plan that is read can be served: files that break a rule are refused.
#include "allocator/plan/plan_file.h"

#include <functional>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace cistern::alloc::plan::plan_file_test {
namespace {

struct Written {
  PlanHead head{};
  std::vector<PlannedRequest> requests;
};

Written good() {
  Written written;
  written.head.device = 1;
  written.head.period = Period::iteration;
  written.head.calls = 5;
  written.head.bytes = 2048;
  written.head.lower_bound = 1536;
  written.head.alignment = 512;
  written.requests = {
      {.bytes = 500, .offset = 0, .allocated = 0, .freed = 2, .stream = 0, .outside = 0},
      {.bytes = 1024, .offset = 1024, .allocated = 1, .freed = 5, .stream = 1, .outside = 0},
      {.bytes = 1000, .offset = 0, .allocated = 3, .freed = 4, .stream = 2, .outside = 0},
  };
  return written;
}

std::vector<uint8_t> file_of(const Written& written) {
  std::vector<uint8_t> file(sizeof(PlanHead) + written.requests.size() * sizeof(PlannedRequest));
  std::memcpy(file.data(), &written.head, sizeof(PlanHead));
  std::memcpy(file.data() + sizeof(PlanHead), written.requests.data(),
              file.size() - sizeof(PlanHead));
  return file;
}

std::vector<uint8_t> good_file() {
  Written written = good();
  finish_head(written.head, written.requests);
  return file_of(written);
}

TEST_CASE("plan file: what was written is read", "[plan]") {
  const auto file = good_file();
  Plan plan;
  REQUIRE(plan.read(file).what == nullptr);
  CHECK((plan.head().requests == 3 && plan.head().device == 1));
  CHECK((plan.request(1).offset == 1024 && plan.request(2).stream == 2));
}

TEST_CASE("plan file: one that breaks a rule is refused", "[plan]") {
  const struct {
    const char* said;
    std::function<void(Written&)> change;
  } cases[] = {
      {"kind of period", [](Written& w) { w.head.period = static_cast<Period>(4); }},
      {"calls of the period", [](Written& w) { w.head.calls = 7; }},
      {"calls of the period", [](Written& w) { w.head.calls = 2; }},
      {"the alignment", [](Written& w) { w.head.alignment = 0; }},
      {"the alignment", [](Written& w) { w.head.alignment = 768; }},
      {"the plan's bytes", [](Written& w) { w.head.bytes = uint64_t{1} << 63; }},
      {"the plan's bytes", [](Written& w) { w.head.lower_bound = 4096; }},
      {"outside the plan's bytes", [](Written& w) { w.requests[1].offset = 1536; }},
      {"outside the plan's bytes", [](Written& w) { w.requests[1].offset = UINT64_MAX - 511; }},
      {"outside the plan's bytes", [](Written& w) { w.requests[1].bytes = 0; }},
      {"not aligned", [](Written& w) { w.requests[2].offset = 8; }},
      {"out of order", [](Written& w) { w.requests[1].allocated = 0; }},
      {"out of order", [](Written& w) { w.requests[0].freed = 0; }},
      {"out of order", [](Written& w) { w.requests[0].freed = 6; }},
      {"unknown stream", [](Written& w) { w.requests[0].stream = 2; }},
      {"has a place", [](Written& w) { w.requests[0].outside = 1; }},
      {"has a place", [](Written& w) { w.requests[1].outside = 2; }},
      {"before the period", [](Written& w) { w.head.before = ~uint64_t{0}; }},
      {"two frees in one call", [](Written& w) { w.requests[0].freed = 4; }},
      {"no allocation or free", [](Written& w) { w.requests[0].freed = 3; }},
      {"no allocation or free", [](Written& w) { w.requests[0].freed = 5; }},
      {"bytes that another one has", [](Written& w) { w.requests[1].offset = 0; }},
      {"bytes that another one has", [](Written& w) { w.requests[2].offset = 512; }},
  };
  for (const auto& one : cases) {
    CAPTURE(one.said);
    Written written = good();
    one.change(written);
    finish_head(written.head, written.requests);
    Plan plan;
    const PlanProblem problem = plan.read(file_of(written));
    REQUIRE(problem.what != nullptr);
    CHECK(std::string(problem.what).find(one.said) != std::string::npos);
  }
}

TEST_CASE("plan file: cut, damaged and foreign files are refused", "[plan]") {
  const auto file = good_file();
  Plan plan;
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    CHECK(plan.read(std::span(file).first(bytes)).what != nullptr);
  }
  for (size_t at = 0; at < file.size(); ++at) {
    auto damaged = file;
    damaged[at] ^= 4;
    CAPTURE(at);
    CHECK(plan.read(damaged).what != nullptr);
  }
  auto longer = file;
  longer.push_back(0);
  CHECK(plan.read(longer).what != nullptr);
  CHECK(plan.read(std::vector<uint8_t>(4096, 'x')).what != nullptr);
}

TEST_CASE("a plan without requests is refused", "[plan]") {
  Written empty = good();
  empty.requests.clear();
  empty.head.calls = empty.head.bytes = empty.head.lower_bound = 0;
  finish_head(empty.head, empty.requests);
  Plan plan;
  const PlanProblem problem = plan.read(file_of(empty));
  REQUIRE(problem.what != nullptr);
  CHECK(std::string(problem.what) == "a plan without requests");
}

TEST_CASE("a plan of more bytes than its places reach is refused", "[plan]") {
  Written wide = good();
  wide.head.bytes += 512;
  finish_head(wide.head, wide.requests);
  Plan plan;
  const PlanProblem problem = plan.read(file_of(wide));
  REQUIRE(problem.what != nullptr);
  CHECK(std::string(problem.allowed) == "the end of the last request");
}

}  // namespace
}  // namespace cistern::alloc::plan::plan_file_test
