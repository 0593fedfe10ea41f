// SPDX-License-Identifier: Apache-2.0
// Writes a recording (FORMAT.md) while the program runs. Events go to buffers, one for a few
// threads; a full one becomes a block of the file. What events refer to is written before them.
//
// Any thread may call put(), which takes one lock that other threads seldom hold, and calls the
// sink when the buffer is full. flush() writes what buffers have, so that a process that is killed
// loses little. Memory is bounded: kBuffers blocks. When the sink refuses, the recording ends there
// and stays readable; what comes later is counted as lost. Nothing allocates from malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/record/encoding.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

class RecordingSink {
 public:
  // Writes at an offset of the file; false when that is not possible.
  virtual bool write(const void* data, size_t bytes, uint64_t at) = 0;

 protected:
  ~RecordingSink() = default;
};

// What the numbers in events mean. Each kind is numbered from 1 to its count without a gap, and
// what was told of a number does not change.
class Definitions {
 public:
  virtual uint32_t names() = 0;
  virtual const char* name(uint32_t number) = 0;
  virtual uint32_t ranges() = 0;
  virtual void range(uint32_t number, uint32_t* parent, uint32_t* name) = 0;
  virtual uint32_t phases() = 0;
  virtual uint32_t phase_name(uint32_t number) = 0;
  virtual uint32_t sites() = 0;
  virtual int frames(uint32_t site, Frame* out) = 0;  // has room for kMostFrames

 protected:
  ~Definitions() = default;
};

class Recorder {
 public:
  static constexpr unsigned kBuffers = 64;

  // Writes the head; false when the sink refuses or the system has no memory. Once, before any
  // other call. `head` has all but what the recorder itself keeps (committed, flags, lost).
  bool begin(RecordingSink* sink, Definitions* definitions, const RecordingHead& head,
             uint32_t flags);

  // `shard`: the caller's thread. Threads with the same number below kBuffers share a buffer.
  void put(unsigned shard, const Event& event);

  // Writes what the buffers have. Events that are put meanwhile may be left.
  void flush();

  // flush(), and the file says that it is whole. What is put afterwards is lost. Waits for no lock
  // longer than 100 ms: the process ends, maybe in a signal handler.
  void end();

  // In a forked child: nothing is written any more, the file is the parent's.
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

  // The definitions that are being put together, and how many of each kind are written.
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
