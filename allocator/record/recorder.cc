// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/recorder.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

constexpr size_t kMappedBytes = sizeof(BlockHead) + kMostBlockBytes;

BlockHead* map_block() { return static_cast<BlockHead*>(os::map(kMappedBytes)); }

uint8_t* contents_of(BlockHead* block) { return reinterpret_cast<uint8_t*>(block + 1); }

size_t room_in(BlockHead* block, const uint8_t* end) {
  return static_cast<size_t>(contents_of(block) + kMostBlockBytes - end);
}

}  // namespace

bool Recorder::begin(RecordingSink* sink, Definitions* definitions, const RecordingHead& head,
                     uint32_t flags) {
  sink_ = sink;
  definitions_ = definitions;
  head_ = head;
  std::memcpy(head_.magic, kRecordingMagic, sizeof head_.magic);
  head_.version = kRecordingVersion;
  head_.head_bytes = sizeof head_;
  head_.committed = sizeof head_;
  head_.flags = flags;
  staging_.block = map_block();
  if (staging_.block == nullptr || !sink_->write(&head_, sizeof head_, 0)) return false;
  staging_.end = contents_of(staging_.block);
  state_.store(Phase::recording, std::memory_order_release);
  return true;
}

void Recorder::put(unsigned shard, const Event& event) {
  if (!recording()) [[unlikely]]
    return refuse(1);
  Buffer& buffer = buffers_[shard % kBuffers];
  const LockGuard guard(buffer.mutex);
  if (buffer.block == nullptr && !open(buffer)) [[unlikely]]
    return refuse(1);
  if (room_in(buffer.block, buffer.end) < kMostEventBytes) [[unlikely]]
    write_out(buffer);
  buffer.end = put_event(buffer.end, buffer.context, event);
  ++buffer.events;
}

void Recorder::flush() {
  for (Buffer& buffer : buffers_) {
    const LockGuard guard(buffer.mutex);
    if (buffer.events != 0) write_out(buffer);
  }
}

void Recorder::flush_at_exit() {
  for (Buffer& buffer : buffers_) {
    const LockGuardAtExit guard(buffer.mutex);
    if (guard && buffer.events != 0) write_out(buffer);
    if (!guard) refuse(buffer.events);
  }
}

// A file that is cut short is told, once more, how much it lacks.
void Recorder::end() {
  // What exit() interrupted may hold it for good: then nothing more can be written.
  if (const LockGuardAtExit free_file(file_); !free_file) return state_.store(Phase::over);
  flush_at_exit();
  Phase expected = Phase::recording;  // unless the sink has refused by now
  const bool whole = state_.compare_exchange_strong(expected, Phase::over);
  if (whole) flush_at_exit();  // what was put meanwhile is lost, and counted
  const LockGuardAtExit guard(file_);
  if (!guard || (!whole && expected != Phase::cut_short)) return;
  if (whole) head_.flags |= kRecordingEnded;
  write_head();
}

void Recorder::abandon() {
  state_.store(Phase::over, std::memory_order_release);
  file_.reset();
  for (Buffer& buffer : buffers_) {
    buffer.mutex.reset();
    buffer.events = 0;
  }
}

// --- buffers: with their lock ---

[[gnu::cold]] bool Recorder::open(Buffer& buffer) {
  buffer.block = map_block();
  if (buffer.block == nullptr) return false;
  start_block(buffer);
  return true;
}

void Recorder::start_block(Buffer& buffer) {
  buffer.end = contents_of(buffer.block);
  buffer.context = {};
  buffer.events = 0;
}

// What the events refer to was numbered before them, so all that is defined by now covers them.
[[gnu::noinline]] void Recorder::write_out(Buffer& buffer) {
  {
    const LockGuard guard(file_);
    if (!recording()) {
      refuse(buffer.events);
    } else if (!define_all() || !write_block(buffer.block, buffer.end, BlockKind::events)) {
      refuse(buffer.events);
      state_.store(Phase::cut_short, std::memory_order_release);
      head_.flags |= kRecordingCutShort;
      write_head();
    }
  }
  start_block(buffer);
}

void Recorder::refuse(uint32_t events) { lost_.fetch_add(events, std::memory_order_relaxed); }

// --- the file: with its lock ---

// What changes of it stands before the texts.
bool Recorder::write_head() {
  head_.lost = lost();
  return sink_->write(&head_, offsetof(RecordingHead, program), 0);
}

// The block counts once the head says so.
bool Recorder::write_block(BlockHead* block, const uint8_t* end, BlockKind kind) {
  const uint8_t* contents = contents_of(block);
  const auto bytes = static_cast<size_t>(end - contents);
  std::memcpy(block->magic, kBlockMagic, sizeof block->magic);
  block->bytes = static_cast<uint32_t>(bytes);
  block->kind = kind;
  block->adler32 = adler32(contents, bytes);
  const uint64_t at = head_.committed;
  if (!sink_->write(block, sizeof *block + bytes, at)) return false;
  head_.committed = at + sizeof *block + bytes;
  if (write_head()) return true;
  head_.committed = at;
  return false;
}

// Names first: the others refer to them.
bool Recorder::define_all() {
  // A range, phase or site has its names before it has its number.
  const uint32_t ranges = definitions_->ranges(), phases = definitions_->phases(),
                 sites = definitions_->sites(), names = definitions_->names();
  while (staging_.names < names) {
    if (!define_name(++staging_.names)) return false;
  }
  while (staging_.ranges < ranges) {
    uint32_t parent, name;
    const uint32_t number = ++staging_.ranges;
    definitions_->range(number, &parent, &name);
    const auto put = [=](uint8_t* out) { return put_varint(put_varint(out, parent), name); };
    if (!define(Defined::range, number, 2 * kMostVarintBytes, put)) return false;
  }
  while (staging_.phases < phases) {
    const uint32_t number = ++staging_.phases;
    const uint32_t name = definitions_->phase_name(number);
    const auto put = [=](uint8_t* out) { return put_varint(out, name); };
    if (!define(Defined::phase, number, kMostVarintBytes, put)) return false;
  }
  while (staging_.sites < sites) {
    if (!define_site(++staging_.sites)) return false;
  }
  return write_definitions();
}

template <typename Put>
bool Recorder::define(Defined what, uint32_t number, size_t most_bytes, Put put) {
  if (room_in(staging_.block, staging_.end) < 1 + kMostVarintBytes + most_bytes &&
      !write_definitions()) {
    return false;
  }
  *staging_.end++ = static_cast<uint8_t>(what);
  staging_.end = put(put_varint(staging_.end, number));
  return true;
}

bool Recorder::define_name(uint32_t number) {
  const char* text = definitions_->name(number);
  const size_t bytes = std::strlen(text);
  return define(Defined::name, number, kMostVarintBytes + bytes, [=](uint8_t* out) {
    out = put_varint(out, bytes);
    return std::copy_n(text, bytes, out);
  });
}

bool Recorder::define_site(uint32_t number) {
  Frame frames[kMostFrames];
  const int count = definitions_->frames(number, frames);
  constexpr size_t kMostBytes = (1 + 4 * size_t{kMostFrames}) * kMostVarintBytes;
  return define(Defined::site, number, kMostBytes, [&](uint8_t* out) {
    out = put_varint(out, static_cast<uint64_t>(count));
    for (int i = 0; i < count; ++i) {
      out = put_varint(put_varint(out, frames[i].file), frames[i].function);
      out = put_varint(put_varint(out, frames[i].line), frames[i].offset);
    }
    return out;
  });
}

bool Recorder::write_definitions() {
  const uint8_t* end = staging_.end;
  staging_.end = contents_of(staging_.block);
  return end == staging_.end || write_block(staging_.block, end, BlockKind::definitions);
}

}  // namespace cistern::alloc
