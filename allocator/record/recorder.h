// SPDX-License-Identifier: Apache-2.0
// Writes a recording (FORMAT.md) while the program runs. Events go to buffers, each shared by a few
// threads. A full buffer becomes a block of the file. Definitions that events refer to are written
// before them.
//
// Any thread may call put(), which takes one lock that other threads seldom hold, and calls the
// sink when the buffer is full. flush() writes the contents of the buffers, so a process that is
// killed loses little. Memory is bounded: kBuffers blocks. When the sink refuses, the recording
// ends there and stays readable. Later events are counted as lost. Nothing allocates from malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/threads.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

class RecordingSink {
 public:
  // Writes at offset `at` of the file; false if that fails.
  virtual bool write(const void* data, size_t bytes, uint64_t at) = 0;

 protected:
  ~RecordingSink() = default;
};

// The meaning of the numbers in events. Each kind is numbered from 1 to its count without a gap.
// The meaning of a number never changes.
class Definitions {
 public:
  virtual uint32_t names() = 0;
  virtual const char* name(uint32_t number) = 0;
  virtual uint32_t ranges() = 0;
  virtual void range(uint32_t number, uint32_t* parent, uint32_t* name) = 0;
  virtual uint32_t phases() = 0;
  virtual uint32_t phase_name(uint32_t number) = 0;
  virtual uint32_t sites() = 0;
  virtual int frames(uint32_t site, Frame* out) = 0;  // `out` has room for kMostFrames

 protected:
  ~Definitions() = default;
};

class Recorder {
 public:
  static constexpr unsigned kBuffers = 64;

  // Writes the head; false if the sink refuses or the system has no memory. Call it once, before
  // any other function. The caller fills `head` except committed, flags and lost, which the
  // recorder keeps.
  bool begin(RecordingSink* sink, Definitions* definitions, const RecordingHead& head,
             uint32_t flags);

  // `shard`: the caller's thread. Threads with the same number below kBuffers share a buffer.
  void put(unsigned shard, const Event& event);

  // Writes the contents of the buffers. Events that are put meanwhile may stay in them.
  void flush();

  // flush(), then marks the file as complete. Events that are put afterwards are lost. Waits for
  // each lock 100 ms at most, because the process ends, perhaps in a signal handler.
  void end();

  // In a forked child: nothing is written any more, because the file is the parent's.
  void abandon();

  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  // Whether the sink has refused.
  bool cut_short() const { return state_.load(std::memory_order_acquire) == Phase::cut_short; }

 private:
  enum class Phase : uint8_t { idle, recording, cut_short, over };

  struct alignas(128) Buffer {
    Mutex mutex;
    BlockHead* block;  // its contents follow; nullptr: not mapped yet
    uint8_t* end;
    uint32_t events;
    EventContext context;
  };

  // The block of definitions that is being made, and how many of each kind are written.
  struct Staging {
    BlockHead* block;
    uint8_t* end;
    uint32_t names, ranges, phases, sites;
  };

  bool recording() const { return state_.load(std::memory_order_acquire) == Phase::recording; }
  bool open(Buffer& buffer);
  void start_block(Buffer& buffer);
  void flush_at_exit();
  void write_out(Buffer& buffer);
  bool write_block(BlockHead* block, const uint8_t* end, BlockKind kind);
  bool write_head();
  bool define_all();
  template <typename Put>
  bool define(Defined what, uint32_t number, size_t most_bytes, Put put);
  bool define_name(uint32_t number);
  bool define_site(uint32_t number);
  bool write_definitions();
  void refuse(uint32_t events);

  RecordingSink* sink_ = nullptr;
  Definitions* definitions_ = nullptr;
  std::atomic<Phase> state_{Phase::idle};
  std::atomic<uint64_t> lost_{0};
  Mutex file_;  // of all below; taken with a buffer's lock held
  RecordingHead head_{};
  Staging staging_{};
  Buffer buffers_[kBuffers]{};
};

}  // namespace cistern::alloc
