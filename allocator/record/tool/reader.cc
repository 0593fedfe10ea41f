// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/recording.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator/record/names.h"

namespace cistern::alloc::tool {
namespace {

constexpr uint32_t kKnownFlags =
    kRecordingEnded | kRecordingHasSites | kRecordingPooled | kRecordingCutShort;

// So that numbers of 32 bits are enough for events and their values.

// Where reading stopped and why. After a failure every further read gives 0, so that a reader needs
// to look once in a while only.
class Problem {
 public:
  explicit Problem(std::string& text) : text_(text) { text_.clear(); }
  bool seen() const { return !text_.empty(); }
  bool say(const char* kind, size_t at, const std::string& what, const char* remedy) {
    if (!seen()) {
      text_ = std::string(kind) + "; byte " + std::to_string(at) + ": " + what + "; try: " + remedy;
    }
    return false;
  }
  bool damaged(size_t at, const std::string& what) {
    return say("a damaged recording", at, what, "copy it again, or record again");
  }

 private:
  std::string& text_;
};

// The contents of a block.
class Contents {
 public:
  Contents(std::span<const uint8_t> bytes, size_t at, Problem& problem)
      : bytes_(bytes), begin_(at), problem_(problem) {}

  bool more() const { return !problem_.seen() && next_ < bytes_.size(); }
  size_t at() const { return begin_ + next_; }
  bool refuse(const std::string& what) {
    problem_.damaged(begin_ + item_, what);
    return false;
  }

  // What begins an event or a definition: it is told where something in it is wrong.
  uint8_t tag() {
    item_ = next_;
    return bytes_[next_++];
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; more(); shift += 7) {
      const uint8_t byte = bytes_[next_++];
      if (shift == 63 && byte > 1) return refuse("a number of more than 64 bits");
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return refuse("the block ends within it");
  }

  uint32_t varint_up_to(uint64_t most, const char* what) {
    const uint64_t value = varint();
    if (value > most) {
      return refuse(std::string(what) + " " + std::to_string(value) + " of " +
                    std::to_string(most));
    }
    return static_cast<uint32_t>(value);
  }

  std::string text(size_t length) {
    if (problem_.seen()) return {};
    if (length > bytes_.size() - next_) return refuse("the block ends within it"), std::string();
    const auto* begin = reinterpret_cast<const char*>(bytes_.data() + next_);
    next_ += length;
    return {begin, length};
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t begin_, next_ = 0, item_ = 0;
  Problem& problem_;
};

class Reader {
 public:
  Reader(std::span<const uint8_t> file, Recording& out, Problem& problem)
      : file_(file), out_(out), problem_(problem) {
    out_.names.emplace_back();
    out_.ranges.push_back({0, 0});
    out_.phases.push_back(0);
    out_.sites.emplace_back();
  }

  void read() {
    if (!read_head()) return;
    for (size_t at = sizeof(RecordingHead); at < out_.head.committed && !problem_.seen();) {
      at = read_block(at);
    }
    if (!problem_.seen()) sort_by_time(out_.events);
  }

 private:
  bool read_head();
  bool check_head(const RecordingHead& head);
  size_t read_block(size_t at);
  void read_definitions(Contents& contents);
  void read_events(Contents& contents);
  void read_event(Contents& contents, EventType type, Memory memory, EventContext& context);
  void read_state(Contents& contents, State state, EventContext& context);

  static uint32_t last(const auto& definitions) {
    return static_cast<uint32_t>(definitions.size() - 1);
  }

  std::span<const uint8_t> file_;
  Recording& out_;
  Problem& problem_;
};

bool Reader::read_head() {
  RecordingHead& head = out_.head;
  if (file_.size() < sizeof head.magic ||
      std::memcmp(file_.data(), kRecordingMagic, sizeof kRecordingMagic) != 0) {
    return problem_.say("no recording", 0, "it does not begin with CISTREC",
                        "a file that cistern record wrote");
  }
  if (file_.size() < sizeof head) {
    return problem_.say("a truncated recording", file_.size(), "the file ends within its head",
                        "copy it again, or record again");
  }
  std::memcpy(&head, file_.data(), sizeof head);
  return check_head(head);
}

bool Reader::check_head(const RecordingHead& head) {
  if (head.version != kRecordingVersion) {
    return problem_.say("a recording of another version", 8,
                        "version " + std::to_string(head.version) + ", and this reads 1",
                        "the cistern that wrote it");
  }
  if (head.head_bytes != sizeof head) {
    return problem_.damaged(12, "a head of " + std::to_string(head.head_bytes) + " bytes");
  }
  if (head.committed < sizeof head) {
    return problem_.damaged(16, std::to_string(head.committed) + " bytes count");
  }
  if (head.committed > kMostRead) {
    return problem_.say("a recording of more than 8 GiB", 16,
                        std::to_string(head.committed) + " bytes count", "record a shorter time");
  }
  if (head.committed > file_.size()) {
    return problem_.say("a truncated recording", file_.size(),
                        "the file ends before " + std::to_string(head.committed) +
                            " bytes, which its head tells of",
                        "copy it again, or record again");
  }
  if ((head.flags & ~kKnownFlags) != 0) {
    return problem_.damaged(44, "flags " + std::to_string(head.flags));
  }
  const auto ends = [&](const char* text, size_t bytes, size_t at) {
    return std::memchr(text, '\0', bytes) != nullptr ||
           problem_.damaged(at, "a text without an end");
  };
  if (!ends(head.program, sizeof head.program, offsetof(RecordingHead, program)) ||
      !ends(head.host, sizeof head.host, offsetof(RecordingHead, host)) ||
      !ends(head.policy, sizeof head.policy, offsetof(RecordingHead, policy))) {
    return false;
  }
  const auto is_zero = [](char byte) { return byte == '\0'; };
  return std::all_of(head.padding, std::end(head.padding), is_zero) ||
         problem_.damaged(offsetof(RecordingHead, padding), "the rest of the head is not zero");
}

// The end of the block.
size_t Reader::read_block(size_t at) {
  BlockHead head;
  const size_t left = out_.head.committed - at;
  if (left < sizeof head) return problem_.damaged(at, "what counts ends within a block"), at;
  std::memcpy(&head, file_.data() + at, sizeof head);
  if (std::memcmp(head.magic, kBlockMagic, sizeof kBlockMagic) != 0) {
    return problem_.damaged(at, "no block begins here"), at;
  }
  if (head.bytes > kMostBlockBytes || head.bytes > left - sizeof head) {
    return problem_.damaged(at, "a block of " + std::to_string(head.bytes) + " bytes"), at;
  }
  const size_t begin = at + sizeof head;
  const std::span<const uint8_t> bytes = file_.subspan(begin, head.bytes);
  if (adler32(bytes.data(), bytes.size()) != head.adler32) {
    return problem_.damaged(at, "a block whose checksum does not fit"), at;
  }
  Contents contents(bytes, begin, problem_);
  if (head.kind == BlockKind::definitions) {
    read_definitions(contents);
  } else if (head.kind == BlockKind::events) {
    read_events(contents);
  } else {
    problem_.damaged(at, "a block of kind " + std::to_string(static_cast<uint32_t>(head.kind)));
  }
  return begin + head.bytes;
}

// A definition that turns out to be damaged stays behind; nobody sees it.
void Reader::read_definitions(Contents& contents) {
  const auto check_next = [&](uint64_t number, const auto& definitions) {
    if (number != definitions.size()) {
      contents.refuse("number " + std::to_string(number) + " is defined after " +
                      std::to_string(last(definitions)));
    }
  };
  while (contents.more()) {
    const uint8_t tag = contents.tag();
    if (tag == 0 || tag > static_cast<uint8_t>(Defined::site)) {
      contents.refuse("a definition of kind " + std::to_string(tag));
      return;
    }
    const uint64_t number = contents.varint();
    switch (static_cast<Defined>(tag)) {
      case Defined::name: {
        check_next(number, out_.names);
        const uint32_t length = contents.varint_up_to(Names::kLongest, "bytes of a name");
        out_.names.push_back(contents.text(length));
        break;
      }
      case Defined::range: {
        check_next(number, out_.ranges);
        const uint32_t parent = contents.varint_up_to(last(out_.ranges), "range");
        out_.ranges.push_back({parent, contents.varint_up_to(last(out_.names), "name")});
        break;
      }
      case Defined::phase:
        check_next(number, out_.phases);
        out_.phases.push_back(contents.varint_up_to(last(out_.names), "name"));
        break;
      case Defined::site: {
        check_next(number, out_.sites);
        std::vector<Frame> frames(contents.varint_up_to(kMostFrames, "frames"));
        for (Frame& frame : frames) {
          frame.file = contents.varint_up_to(last(out_.names), "name");
          frame.function = contents.varint_up_to(last(out_.names), "name");
          frame.line = contents.varint_up_to(UINT32_MAX, "line");
          frame.offset = contents.varint();
        }
        out_.sites.push_back(std::move(frames));
        break;
      }
    }
  }
}

void Reader::read_state(Contents& contents, State state, EventContext& context) {
  uint64_t& value = context.state[static_cast<int>(state)];
  switch (state) {
    case State::thread:
      value = contents.varint_up_to(UINT32_MAX, "thread");
      break;
    case State::device:
      value = contents.varint_up_to(UINT32_MAX, "device");
      break;
    case State::context:
    case State::stream:
      value = contents.varint();
      break;
    case State::site:
      value = contents.varint_up_to(last(out_.sites), "site");
      break;
    case State::range:
      value = contents.varint_up_to(last(out_.ranges), "range");
      break;
    case State::phase:
      value = contents.varint_up_to(last(out_.phases), "phase");
      break;
  }
}

void Reader::read_event(Contents& contents, EventType type, Memory memory, EventContext& context) {
  context.time_ns += static_cast<uint64_t>(unzigzag(contents.varint()));
  if (context.time_ns > INT64_MAX) contents.refuse("a time before the recording began");
  uint64_t values[3];
  size_t count = 0;
  if (has_address(type)) {
    values[count++] = context.address += static_cast<uint64_t>(unzigzag(contents.varint()));
  }
  if (has_bytes(type)) values[count++] = contents.varint();
  if (type == EventType::refused) values[count++] = contents.varint_up_to(UINT32_MAX, "code");
  out_.events.add(type, memory, context.time_ns, values);
}

void Reader::read_events(Contents& contents) {
  EventContext context{};
  out_.events.set_state(context.state);
  bool told = false;  // of a change
  while (contents.more()) {
    const uint8_t tag = contents.tag();
    const unsigned type = tag & ((1u << kTypeBits) - 1), memory = tag >> kTypeBits;
    if (type >= kFirstStateTag && type < kFirstStateTag + kStates && memory == 0) {
      read_state(contents, static_cast<State>(type - kFirstStateTag), context);
      told = true;
      continue;
    }
    if (type == 0 || type > static_cast<unsigned>(kLastEventType) ||
        memory >= static_cast<unsigned>(kMemories)) {
      contents.refuse("an event of kind " + std::to_string(tag));
      return;
    }
    if (std::exchange(told, false)) out_.events.set_state(context.state);
    read_event(contents, static_cast<EventType>(type), static_cast<Memory>(memory), context);
  }
}

}  // namespace

// Outer names come first, and those that are kept are the inner ones.
std::string Recording::range(uint32_t number) const {
  constexpr int kDeepest = 64;
  constexpr size_t kLongest = 16384;
  uint32_t parts[kDeepest];
  int depth = 0;
  for (size_t length = 0; number != 0 && depth < kDeepest; number = ranges[number].parent) {
    length += names[ranges[number].name].size() + 1;
    if (length > kLongest) break;
    parts[depth++] = ranges[number].name;
  }
  std::string path;
  for (; depth != 0; --depth) path += names[parts[depth - 1]] + (depth == 1 ? "" : "/");
  return path;
}

std::optional<Recording> read_recording(std::span<const uint8_t> file, std::string& problem) {
  Recording recording{};
  Problem seen(problem);
  Reader(file, recording, seen).read();
  if (seen.seen()) return std::nullopt;
  return recording;
}

}  // namespace cistern::alloc::tool
