// SPDX-License-Identifier: Apache-2.0
// The streams the program has, as the hooks report them, and which context a stream belongs to. Any
// thread.
//
// They are followed only for drivers that cannot record an event for a whole context (before CUDA
// 12.5): there a mark consists of one event per stream (events.h), so Cistern must know
// whether it knows them all.
//
// A stream is listed in the registry from its creation until before it is destroyed. A stream that
// cannot be listed makes marks impossible while it exists. Work that no event covers (a *loss*)
// makes them impossible until the program has waited for the whole context.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/threads.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// Handles only, no CUDA call.
class StreamRegistry {
 public:
  // A mark with more events would cost more than the driver calls it saves.
  static constexpr int kMaxStreams = 2048;

  struct Entry {
    CUstream stream;  // nullptr: not in use
    CUcontext context;
    bool blocking;
  };

  // The driver has just created this stream. If its handle is still listed, no hook saw the end of
  // the stream that had it before: returns that stream's context, else nullptr.
  CUcontext add(const Entry& entry);

  // The stream is about to be destroyed; false if it is not listed.
  bool take_out(CUstream stream, Entry* entry);

  // To be called when a stream that is not listed was destroyed. False if the registry counted no
  // unlisted streams.
  bool unlisted_gone();

  // The context of a listed stream, else nullptr.
  CUcontext context_of(CUstream stream);

  bool knows(CUstream stream);
  void context_gone(CUcontext context);

  // From now on, for good, there may be work on streams that the list lacks.
  void give_up() { given_up_.store(true, std::memory_order_seq_cst); }
  // Whether the list has every stream.
  bool complete() const { return !given_up_.load() && unlisted_.load() == 0; }

  // Counts a loss (above); how many there were so far.
  void lose() { losses_.fetch_add(1, std::memory_order_seq_cst); }
  uint64_t losses() const { return losses_.load(std::memory_order_seq_cst); }

  // The non-blocking streams of a context one after the other, from *position = 0 on; nullptr after
  // the last. Entries do not move: what is listed throughout is never passed over.
  CUstream next_non_blocking(CUcontext context, int* position);

 private:
  Entry* find(CUstream stream);
  std::atomic<CUstream>& place_of(CUstream stream) {
    return lately_[reinterpret_cast<uintptr_t>(stream) / 64 % kLately];
  }

  static constexpr size_t kLately = 64;
  // Listed streams that knows() found, each at its place: the next answer needs no lock. Written
  // with the lock.
  std::atomic<CUstream> lately_[kLately] = {};
  alloc::Mutex mutex_;
  int used_ = 0;  // entries from here on were never in use
  Entry list_[kMaxStreams] = {};
  std::atomic<bool> given_up_{false};
  std::atomic<int> unlisted_{0};  // streams that found no room
  std::atomic<uint64_t> losses_{0};
};

// The registry of the process.
StreamRegistry& streams();

bool streams_followed();

// The program created a stream in its current context.
void stream_appeared(CUstream stream, unsigned flags);

// The context of a stream, if the driver returns it; else the calling thread's.
CUcontext context_of_stream(CUstream stream);

// True for the handles of the default streams, which exist once per context or per thread.
inline bool stands_for_several(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// To be called after a driver call of the program on this stream succeeded. If no hook saw the
// stream's creation, its context may have more such streams, whose work no mark covers. From then
// on only the program's synchronisations of that context show what is done.
void stream_seen(CUstream stream);

// Put around the driver's call that destroys a stream.
class StreamLeaving {
 public:
  explicit StreamLeaving(CUstream stream);
  void done(bool destroyed);

 private:
  StreamRegistry::Entry entry_{};
  bool listed_ = false;
};

}  // namespace cistern::shim
