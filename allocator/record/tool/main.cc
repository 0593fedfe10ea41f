// SPDX-License-Identifier: Apache-2.0
// cistern-trace: what `cistern trace` runs. An ordinary program: single-threaded, may use the C++
// library.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/record/tool/analysis.h"
#include "allocator/record/tool/recording.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

constexpr int kDone = 0, kRefused = 1, kUsage = 2;

int fail(int code, const std::string& what) {
  std::fprintf(stderr, "cistern: error: %s\n", printable(what).c_str());
  return code;
}

// What is written is bounded by what was read. A few bytes of a made-up recording can tell of a
// path of 256 KiB, once more for each event.
class BoundedOutput {
 public:
  explicit BoundedOutput(size_t read) : left_(kAlways + kTimes * read) {
    std::FILE* bounded = ::fopencookie(this, "w", {nullptr, put, nullptr, nullptr});
    if (bounded == nullptr) std::abort();  // without memory
    stdout = bounded;
  }

 private:
  static constexpr uint64_t kAlways = uint64_t{64} << 20, kTimes = 1000;

  // 0: an error, for stdio.
  static ssize_t put(void* self, const char* text, size_t bytes) {
    uint64_t& left = static_cast<BoundedOutput*>(self)->left_;
    const size_t allowed = std::min<uint64_t>(bytes, left);
    for (size_t done = 0; done < allowed;) {
      const ssize_t written = ::write(STDOUT_FILENO, text + done, allowed - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return 0;
      done += static_cast<size_t>(written);
    }
    left -= allowed;
    if (allowed == bytes) return static_cast<ssize_t>(bytes);
    std::_Exit(
        fail(kRefused,
             "the output would exceed 64 MiB plus a thousand times the recording; the rest is left "
             "out; try: --top, --site or another list"));
  }

  uint64_t left_;
};

void show(const Selection& selection) {
  switch (selection.options.view) {
    case View::summary:
      return selection.options.by ? show_lists(selection) : show_summary(selection);
    case View::csv:
      return show_csv(selection);
    case View::events:
      return show_events(selection);
    case View::folded:
      return show_folded(selection);
    case View::json:
      return show_json(selection);
    case View::json_events:
      return show_json_events(selection);
  }
}

int run(int argc, char** argv) {
  Options options;
  std::string problem;
  if (!read_options(argc, argv, options, problem)) return fail(kUsage, problem);
  std::vector<uint8_t> bytes;
  if (!read_file(options.file, "a recording", bytes, problem)) return fail(kRefused, problem);
  std::optional<Recording> recording = read_recording(bytes, problem);
  if (!recording) return fail(kRefused, options.file + ": " + problem);
  static BoundedOutput output(bytes.size());  // until stdout is closed, after main()
  bytes = {};
  find_phases(*recording);
  const Selection selection(*recording, options);
  if (!options.svg.empty() &&
      !write_file(options.svg, live_picture(selection), "the picture", problem)) {
    return fail(kRefused, problem);
  }
  show(selection);
  if (std::fflush(stdout) == 0) return kDone;
  return fail(kRefused, std::string("the output cannot be written: ") + std::strerror(errno) +
                            "; try: another file, or df");
}

}  // namespace
}  // namespace cistern::alloc::tool

int main(int argc, char** argv) { return cistern::alloc::tool::run(argc - 1, argv + 1); }
