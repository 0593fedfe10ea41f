// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/recording.h"

#include "tests/catch.h"
#include "tests/unit/allocator/record/events.h"
#include "tests/unit/allocator/record/written.h"

namespace reader_test {

using namespace cistern::alloc;

namespace {

constexpr size_t kHead = sizeof(RecordingHead);

// "" where the bytes are a recording.
std::string problem_of(const std::vector<uint8_t>& file) {
  std::string problem;
  const bool read = tool::read_recording(file, problem).has_value();
  CHECK(read == problem.empty());
  CHECK(problem.find('\n') == std::string::npos);
  return problem;
}

std::vector<uint8_t> with_block(uint32_t kind, const std::vector<uint8_t>& contents) {
  test::MemorySink sink;
  RecordingHead head = test::head_of_a_test();
  std::memcpy(head.magic, kRecordingMagic, sizeof head.magic);
  head.version = kRecordingVersion;
  head.head_bytes = kHead;
  const BlockHead block{.magic = {'C', 'B', 'L', 'K'},
                        .bytes = static_cast<uint32_t>(contents.size()),
                        .kind = static_cast<BlockKind>(kind),
                        .adler32 = adler32(contents.data(), contents.size())};
  head.committed = kHead + sizeof block + contents.size();
  sink.write(&head, sizeof head, 0);
  sink.write(&block, sizeof block, kHead);
  sink.write(contents.data(), contents.size(), kHead + sizeof block);
  return sink.file;
}

template <typename T>
std::vector<uint8_t> with(std::vector<uint8_t> file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  return file;
}

}  // namespace

TEST_CASE("reader: what is no recording is told from one that is damaged") {
  const std::vector<uint8_t> whole = test::written_recording(1, 1, 10);
  REQUIRE(problem_of(whole).empty());
  CHECK(problem_of({}).starts_with("no recording; byte 0"));
  CHECK(problem_of({'P', 'K', 3, 4, 0, 0, 0, 0, 0}).starts_with("no recording"));
  CHECK(problem_of(with<uint32_t>(whole, 8, 2)).starts_with("a recording of another version"));
  CHECK(problem_of(with<uint32_t>(whole, 12, 64)).find("byte 12: a head of 64") !=
        std::string::npos);
  CHECK(problem_of(with<uint64_t>(whole, 16, 100)).find("byte 16") != std::string::npos);
  CHECK(problem_of(with<uint64_t>(whole, 16, 1 << 20)).starts_with("a truncated recording"));
  CHECK(problem_of(with<uint64_t>(whole, 16, UINT64_MAX)).starts_with("a recording of more than"));
  CHECK(problem_of(with<uint32_t>(whole, 44, 0x80)).find("byte 44: flags 128") !=
        std::string::npos);
  CHECK(problem_of(with<uint32_t>(whole, 4000, 1)).find("byte 2368") != std::string::npos);
  CHECK(problem_of(with<uint8_t>(whole, kHead, 'X')).find("byte 4096") != std::string::npos);
  CHECK(problem_of(with<uint32_t>(whole, kHead + 4, 70000)).find("70000") != std::string::npos);
  CHECK(problem_of(with<uint32_t>(whole, kHead + 8, 3)).find("kind 3") != std::string::npos);
  CHECK(problem_of(with<uint32_t>(whole, kHead + 12, 1)).find("checksum") != std::string::npos);
  std::vector<uint8_t> texts = whole;
  std::fill_n(texts.begin() + 64, 1024, 'x');
  CHECK(problem_of(texts).find("a text without an end") != std::string::npos);
}

TEST_CASE("reader: a recording that is cut anywhere is refused") {
  const std::vector<uint8_t> whole = test::written_recording(1, 2, 20);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::string problem =
        problem_of({whole.begin(), whole.begin() + static_cast<long>(bytes)});
    REQUIRE(problem.starts_with(bytes < 8 ? "no recording" : "a truncated recording"));
  }
}

TEST_CASE("reader: what a killed process was writing is no damage") {
  std::vector<uint8_t> file = test::written_recording(1, 1, 10);
  file.insert(file.end(), 1000, 0xAB);
  CHECK(problem_of(file).empty());
}

TEST_CASE("reader: a bit that flipped in a block is seen") {
  const std::vector<uint8_t> whole = test::written_recording(1, 2, 20);
  for (size_t at = kHead; at < whole.size(); ++at) {
    for (int flip = 0; flip < 8; ++flip) {
      std::vector<uint8_t> file = whole;
      file[at] = static_cast<uint8_t>(file[at] ^ 1u << flip);
      REQUIRE(problem_of(file).starts_with("a damaged recording; byte "));
    }
  }
}

TEST_CASE("reader: contents that make no sense are refused though the checksum fits") {
  const std::vector<uint8_t> kTooLong(10, 0xFF);
  const auto events = [](std::vector<uint8_t> contents) {
    return problem_of(with_block(1, contents));
  };
  const auto definitions = [](std::vector<uint8_t> contents) {
    return problem_of(with_block(2, contents));
  };
  CHECK(events({}).empty());
  CHECK(events({1, 0, 2, 3}).empty());
  CHECK(events({0}).find("byte 4112: an event of kind 0") != std::string::npos);
  CHECK(events({1 | 7 << 4, 0, 2, 3}).find("an event of kind 113") != std::string::npos);
  CHECK(events({8 | 1 << 4, 1}).find("an event of kind 24") != std::string::npos);
  CHECK(events({15, 1}).find("an event of kind 15") != std::string::npos);
  CHECK(events({1, 0, 2}).find("the block ends within it") != std::string::npos);
  CHECK(events({7, 1}).find("a time before the recording began") != std::string::npos);
  CHECK(events({12, 1}).find("site 1 of 0") != std::string::npos);
  CHECK(events({13, 1}).find("range 1 of 0") != std::string::npos);
  CHECK(events({14, 1}).find("phase 1 of 0") != std::string::npos);
  CHECK(events({8, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F}).find("thread 8589934591") != std::string::npos);
  std::vector<uint8_t> long_number{10};
  long_number.insert(long_number.end(), kTooLong.begin(), kTooLong.end());
  CHECK(events(long_number).find("more than 64 bits") != std::string::npos);
  CHECK(definitions({1, 1, 2, 'a', 'b'}).empty());
  CHECK(definitions({5, 1}).find("a definition of kind 5") != std::string::npos);
  CHECK(definitions({1, 2, 0}).find("number 2 is defined after 0") != std::string::npos);
  CHECK(definitions({1, 1, 3, 'a', 'b'}).find("ends within") != std::string::npos);
  CHECK(definitions({2, 1, 1, 0}).find("range 1 of 0") != std::string::npos);
  CHECK(definitions({3, 1, 1}).find("name 1 of 0") != std::string::npos);
  CHECK(definitions({4, 1, 65}).find("frames 65 of 64") != std::string::npos);
  CHECK(definitions({4, 1, 1, 1, 0, 0, 0}).find("name 1 of 0") != std::string::npos);
}

TEST_CASE("reader: of events of one time frees come first, and a thread's stay in order") {
  Event freed = test::free_of(test::allocation(1, 0)), other = test::allocation(1, 5);
  other.thread = 2;
  tool::Events events{other, freed};
  tool::sort_by_time(events);
  CHECK(events[0].type == EventType::freed);
  freed.thread = 2;
  events = {other, freed, test::allocation(2, 7)};
  tool::sort_by_time(events);
  CHECK(events[0].thread == 2);
  CHECK(events[0].type == EventType::allocated);
  CHECK(events[2].type == EventType::freed);
  Event early = test::allocation(3, 1);
  Event late = early;
  late.time_ns = 5;
  events = {late, early};
  tool::sort_by_time(events);
  CHECK(events[0].time_ns == 0);
}

}  // namespace reader_test
