// SPDX-License-Identifier: Apache-2.0
// Plans, tables and traces with damage. Whatever the bytes are, the readers stay inside them and
// give one line or what makes sense, and what is read can be planned. Checksums are mended in half
// of the plans: damage would not get past them otherwise.
//
// plan_fuzz [SEED [NUMBER]]
#include <cstdio>
#include <cstdlib>
#include <random>

#include "allocator/plan/plan_file.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/tool/tool.h"
#include "tests/unit/allocator/plan/cases.h"

namespace {

using namespace cistern::alloc::plan;

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "plan_fuzz: %s\n", what.c_str());
  std::abort();
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// What is written of a plan, as one of its files.
std::string written(const Input& input, bool table) {
  Problem problem;
  constexpr uint64_t kAlignment = 1, kSteps = 20'000;
  if (problem.build(input.lives, kAlignment) != Built::yes) return "";
  Planned planned;
  PlannerOptions options;
  options.steps = kSteps;
  options.last_plan = input.offsets;
  if (!plan(problem, options, planned)) broken("no memory");
  const std::vector<uint64_t> offsets(planned.offsets.begin(), planned.offsets.end());
  const std::string wrong = test::wrong_with(input.lives, offsets, planned.bytes, kAlignment);
  if (!wrong.empty()) broken(wrong);
  const Result result = {input, problem, offsets, planned.bytes, kAlignment};
  return table ? table_text(result) : plan_text(result);
}

bool check_plan(std::string file, bool mend) {
  PlanHead head;
  if (mend && file.size() >= sizeof head + sizeof(PlannedRequest)) {
    std::memcpy(&head, file.data(), sizeof head);
    std::vector<PlannedRequest> requests((file.size() - sizeof head) / sizeof(PlannedRequest));
    std::memcpy(requests.data(), file.data() + sizeof head,
                requests.size() * sizeof(PlannedRequest));
    finish_head(head, requests);
    std::memcpy(file.data(), &head, sizeof head);
  }
  Plan plan;
  if (plan.read(bytes_of(file)).what != nullptr) return false;
  Input read;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < plan.head().requests; ++i) {
    const PlannedRequest one = plan.request(i);
    read.lives.push_back({.from = one.allocated, .to = one.freed, .bytes = one.bytes});
    offsets.push_back(one.offset);
    bytes = std::max(bytes, one.offset + one.bytes);
  }
  if (bytes > plan.head().bytes) broken("a request beyond the plan's bytes");
  const std::string wrong = test::wrong_with(read.lives, offsets, bytes, 1);
  if (!wrong.empty()) broken(wrong);
  return true;
}

bool check_input(const std::string& file) {
  Input input;
  std::string problem;
  const bool read = read_input(bytes_of(file), {}, input, problem);
  if (read != problem.empty()) broken("a problem without its line, or a line without");
  if (problem.find('\n') != std::string::npos) broken("a problem of two lines");
  const std::string plan = read ? written(input, false) : "";
  if (!plan.empty() && !check_plan(plan, false)) broken("a plan that is written is refused");
  return read;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 2000;
  std::mt19937_64 random(seed);
  const std::string digits = "0123456789,\n-";
  uint64_t read = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Input whole;
    whole.lives = test::random_lives(random(), 1 + random() % 20, 12, 1000);
    const bool table = random() % 2 == 0;
    std::string file = written(whole, table);
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      char& damaged = file[random() % file.size()];
      damaged = random() % 2 == 0 ? digits[random() % digits.size()] : static_cast<char>(random());
    }
    if (random() % 20 == 0) file.resize(random() % file.size());
    read += table ? check_input(file) : check_plan(file, random() % 2 == 0);
  }
  if (count > 100 && (read == 0 || read == count)) broken("the damage is of one kind only");
  std::printf("plan_fuzz: %llu inputs from seed %llu, %llu of them read\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(read));
  return 0;
}
