// SPDX-License-Identifier: Apache-2.0
// cistern-plan: what `cistern plan` runs. An ordinary program: single-threaded, may use the C++
// library.
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "allocator/plan/plan_file.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/tool/tool.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::plan {
namespace {

constexpr int kDone = 0, kRefused = 1, kUsage = 2;

int fail(int code, const std::string& what) {
  std::fprintf(stderr, "cistern: error: %s\n", tool::printable(what).c_str());
  return code;
}

double percent_above(uint64_t bytes, uint64_t bound) {
  return 100 * (static_cast<double>(bytes) / static_cast<double>(bound) - 1);
}

// On a terminal, in one line that is written anew.
void tell(void*, const Progress& progress) {
  std::fprintf(stderr, "\r\033[K%s: %" PRIu64 " bytes, %.2f %% above the lower bound",
               progress.step, progress.bytes, percent_above(progress.bytes, progress.lower_bound));
}

bool build(std::span<const Lifetime> lives, uint64_t alignment, Problem& out,
           std::string& problem) {
  switch (out.build(lives, alignment)) {
    case Built::yes:
      return true;
    case Built::no_memory:
      problem = "no memory to plan; value seen \"" + std::to_string(lives.size()) +
                " blocks\"; try: a machine with more";
      break;
    case Built::too_many:
      problem = "too many blocks; value seen \"" + std::to_string(lives.size()) +
                "\"; allowed: 2^30; try: a shorter recording";
      break;
    case Built::bad_lifetime:
    case Built::too_many_bytes:
      problem =
          "too many bytes in all blocks together; value seen \"more than 2^62\"; allowed: "
          "2^62; try: cistern help";
      break;
  }
  return false;
}

// The offsets of an earlier plan: for a search to begin with, so another number of them is no
// error.
bool read_last(const Options& options, Input& input, std::string& problem) {
  if (options.last.empty()) return true;
  std::vector<uint8_t> file;
  if (!tool::read_file(options.last, "a file", file, problem)) return false;
  Plan last;
  const PlanProblem refused = last.read(file);
  if (refused.what != nullptr) {
    problem = options.last + ": " + refused.what + "; value seen \"" +
              std::to_string(refused.seen) + "\"; allowed: " + refused.allowed +
              "; try: without --last";
    return false;
  }
  input.offsets.clear();
  for (uint64_t i = 0; i < last.head().requests; ++i) {
    if (last.request(i).outside == 0) input.offsets.push_back(last.request(i).offset);
  }
  return true;
}

void show(const Result& result, const Skipped& skipped, const Planned& planned, double seconds) {
  const Problem& problem = result.problem;
  const uint64_t bound = problem.lower_bound();
  std::printf("requests     %zu\n", result.input.lives.size());
  if (result.input.iteration) {
    std::printf("%s%zu requests, seen %" PRIu64 " times, first after %" PRIu64
                " others; the pool serves %zu that outlive it\n",
                result.input.of_thread ? "of a thread  " : "iteration    ",
                result.input.lives.size() + result.input.outside.size(), result.input.times,
                result.input.before, result.input.outside.size());
  }
  for (const SkipEntry& entry : skipped.entries) {
    std::printf("kept apart   %s: %" PRIu64 " requests\n", tool::printable(entry.text).c_str(),
                entry.requests);
  }
  std::printf("lower bound  %" PRIu64 " bytes, %" PRIu64 " of them for an alignment of %" PRIu64
              "\n",
              bound, bound - problem.lower_bound_unaligned(), result.alignment);
  std::printf("planned      %" PRIu64 " bytes, %.3f %% above the lower bound\n", result.bytes,
              percent_above(result.bytes, bound));
  std::printf("found by     %s, in %.2f s with %.1f MiB of tables\n", planned.winner, seconds,
              static_cast<double>(planned.memory_bytes) / (1 << 20));
}

// What is planned, piece by piece.
class Plans {
 public:
  Plans(const Options& options, uint64_t began) : options_(options), began_(began) {}

  // `parts`: of so many, which share the time.
  bool add(const Input& input, size_t parts, std::string& problem) {
    constexpr uint64_t kDriverAlignment = 512;
    const uint64_t alignment =
        options_.alignment.value_or(input.counts_calls ? kDriverAlignment : 1);
    const uint64_t now = os::now_ns();
    const Skipped skipped = skipped_of(input, options_.wanted.skip);
    const std::vector<Lifetime> lives = lives_to_plan(input, skipped);
    Problem blocks;
    if (!build(lives, alignment, blocks, problem)) return false;
    const uint64_t deadline =
        (parts == 1 ? began_ : now) + static_cast<uint64_t>(options_.most_seconds() * 1e9) / parts;
    Planned planned;
    if (options_.level == 0 ? !plan_same_size(blocks, lives, planned)
                            : !search(blocks, input, deadline, planned)) {
      problem = "no memory to plan; try: a machine with more";
      return false;
    }
    const Result result = {input, blocks, planned.offsets.span(), planned.bytes, alignment};
    if (!options_.out.empty()) {
      text_ += options_.out.ends_with(".csv") ? table_text(result) : plan_text(result);
    }
    if (!options_.svg.empty()) picture_ = picture_text(result);
    if (options_.wanted.log) std::fputs(reuse_text(result).c_str(), stdout);
    show(result, skipped, planned, static_cast<double>(os::now_ns() - began_) / 1e9);
    return true;
  }

  bool write(std::string& problem) const {
    if (!options_.out.empty() && !tool::write_file(options_.out, text_, "the plan", problem)) {
      return false;
    }
    return options_.svg.empty() || tool::write_file(options_.svg, picture_, "the picture", problem);
  }

 private:
  bool search(const Problem& blocks, const Input& input, uint64_t deadline_ns, Planned& out) const {
    PlannerOptions how;
    how.steps = options_.steps.value_or(UINT64_MAX);
    how.deadline_ns = deadline_ns;
    how.last_plan = input.offsets;
    const bool tells = ::isatty(STDERR_FILENO) != 0;
    if (tells) how.report = tell;
    if (!plan(blocks, how, out)) return false;
    if (tells) std::fputs("\r\033[K", stderr);
    return true;
  }

  const Options& options_;
  const uint64_t began_;
  std::string text_, picture_;
};

bool read_all(const Options& options, std::vector<Input>& out, std::string& problem) {
  std::vector<uint8_t> file;
  if (!tool::read_file(options.file, "a file", file, problem)) return false;
  Input input;
  const bool read = read_input(file, options.wanted, input, problem) &&
                    (!options.iteration || take_iteration(input, problem)) &&
                    (!options.threads || take_iterations(input, out, problem));
  if (!read) {
    problem = options.file + ": " + problem;
    return false;
  }
  if (options.threads) return true;
  if (!read_last(options, input, problem)) return false;
  out.push_back(std::move(input));
  return true;
}

int run(int argc, char** argv) {
  const uint64_t began = os::now_ns();
  Options options;
  std::string problem;
  if (!read_options(argc, argv, options, problem)) return fail(kUsage, problem);
  std::vector<Input> inputs;
  if (!read_all(options, inputs, problem)) return fail(kRefused, problem);
  Plans plans(options, began);
  for (const Input& input : inputs) {
    if (!plans.add(input, inputs.size(), problem))
      return fail(kRefused, options.file + ": " + problem);
  }
  if (!plans.write(problem)) return fail(kRefused, problem);
  if (std::fflush(stdout) == 0) return kDone;
  return fail(kRefused, std::string("the summary cannot be written: ") + std::strerror(errno));
}

}  // namespace
}  // namespace cistern::alloc::plan

int main(int argc, char** argv) { return cistern::alloc::plan::run(argc - 1, argv + 1); }
