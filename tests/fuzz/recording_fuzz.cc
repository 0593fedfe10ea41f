// SPDX-License-Identifier: Apache-2.0
// Recordings with damage: whatever the bytes are, the reader stays inside them and gives one line
// or a recording whose numbers all have their definition, and the views can show it. Checksums are
// mended in half of them: damage would not get past them otherwise.
//
// recording_fuzz [SEED [NUMBER]]
#include <cstdio>
#include <cstdlib>

#include "allocator/record/tool/analysis.h"
#include "allocator/record/tool/recording.h"
#include "allocator/record/tool/text.h"
#include "tests/unit/allocator/record/written.h"

namespace {

using namespace cistern::alloc;
using test::below;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "recording_fuzz: %s\n", what);
  std::abort();
}

void mend_checksums(std::vector<uint8_t>& file) {
  BlockHead head;
  for (size_t at = sizeof(RecordingHead); at + sizeof head <= file.size();) {
    std::memcpy(&head, file.data() + at, sizeof head);
    const size_t begin = at + sizeof head;
    if (head.bytes > file.size() - begin) return;
    head.adler32 = adler32(file.data() + begin, head.bytes);
    std::memcpy(file.data() + at, &head, sizeof head);
    at = begin + head.bytes;
  }
}

// However they are grouped, all blocks are in the sums, and those that live at the end.
void check_sums(const tool::Selection& selection) {
  uint64_t allocations = 0, live = 0;
  for (const auto& [kind, sums] : tool::sums_of(selection).kinds) {
    allocations += sums.allocations;
    live += sums.live_blocks;
  }
  for (const tool::By by : {tool::By::site, tool::By::range, tool::By::phase, tool::By::thread}) {
    const tool::Ranking ranking(selection, [by](const Event& e) { return tool::number_of(e, by); });
    uint64_t ranked = 0, ranked_live = 0;
    ranking.for_each([&](const tool::Row& row) {
      ranked += row.tally.allocations;
      ranked_live += row.tally.live_blocks;
      if (row.tally.temporary > row.tally.allocations - row.tally.live_blocks) {
        broken("blocks were temporary that nobody freed");
      }
    });
    if (ranked != allocations || ranked_live != live) broken("blocks are missing in a list");
  }
}

// Whether it was a recording.
bool check(const std::vector<uint8_t>& file) {
  std::string problem;
  auto recording = tool::read_recording(file, problem);
  if (recording.has_value() != problem.empty())
    broken("a problem without its line, or a line without");
  if (problem.find('\n') != std::string::npos) broken("a problem of two lines");
  if (!recording) return false;
  tool::find_phases(*recording);
  const tool::Options options;
  const tool::Selection selection(*recording, options);
  check_sums(selection);
  for (const Event& event : recording->events) {
    tool::site_text(*recording, event.site);
    recording->range(event.range);
    recording->phase(event.phase);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 1000;
  test::Random random(seed);
  uint64_t read = 0;
  std::vector<uint8_t> whole;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % 100 == 0) whole = test::written_recording(random(), 1 + below(random, 3), 60);
    std::vector<uint8_t> file = whole;
    for (uint32_t n = 1 + below(random, 4); n > 0; --n) {
      const size_t from = random() % 4 == 0 ? 0 : sizeof(RecordingHead);
      file[from + below(random, file.size() - from)] = static_cast<uint8_t>(random());
    }
    if (random() % 20 == 0) file.resize(below(random, file.size()));
    if (random() % 2 == 0) mend_checksums(file);
    read += check(file);
  }
  if (count > 100 && (read == 0 || read == count)) broken("the damage is of one kind only");
  std::printf("recording_fuzz: %llu inputs from seed %llu, %llu of them read\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(read));
  return 0;
}
