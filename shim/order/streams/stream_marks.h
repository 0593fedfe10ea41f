// SPDX-License-Identifier: Apache-2.0
// Streams of the program, events on them, and the marks that consist of such events.
//
// *Streams*: those the program has, as the hooks report them, and which context a stream belongs
// to. Any thread. They are followed only for drivers that cannot record an event for a whole
// context (before CUDA 12.5): there a mark consists of one event per stream (StreamMarks), so
// Cistern must know whether it knows them all.
//
// A stream is listed in the registry from its creation until before it is destroyed. A stream that
// cannot be listed makes marks impossible while it exists. Work that no event covers (a *loss*)
// makes them impossible until the program has waited for the whole context.
//
// *Events* that Cistern records for itself: the right context while one is created or recorded, and
// its state. Each function reaches the driver, so the caller holds a GatePass (capture_gate.h). Any
// thread; for StreamMarks, see below.
//
// StreamMarks makes marks for drivers without cuCtxRecordEvent (before CUDA 12.5): a mark is a
// group of events that together stand for all work a context was given, and has passed when each of
// them has.
//
//   * One on the legacy stream, by its own handle: it comes after all earlier work of every
//     blocking stream, which are those created without CU_STREAM_NON_BLOCKING and the per-thread
//     ones of all threads (another thread's own has no handle).
//   * One on each non-blocking stream of the registry.
//   * One on each stream that was destroyed, recorded just before: cuStreamDestroy returns at once
//     and the work goes on. These *last events* form a queue; a mark waits for the older ones.
//
// Work on the legacy stream, an event too, makes later work of blocking streams wait for earlier
// work of others: order on the device, the host does not wait. A program cannot depend on the lack
// of that order: marks are only made while it frees device memory, where the driver's own free
// waits for everything, or allocates some, which the CUDA Programming Guide (Implicit
// Synchronization) lists among the operations between which commands of different streams need not
// run concurrently. Without blocking streams it costs nothing.
//
// Frees that wait for the whole context do not make these marks unnecessary: memory freed in stream
// order, in a capture, beside a peer or after a copy to another context becomes clean only by them.
//
// No event that we can record covers streams of green contexts (drivers for CUDA 12.4): once such a
// stream appears, there are no marks. Any thread may call possible(), synchronised() and
// stream_unseen(). All other calls of StreamMarks: one thread at a time, which holds the turn of
// reclamation (allocator/reclaim/reclaim.h) and has passed the capture gate.
//
// streams.cc implements streams_followed(), stream_appeared(), context_of_stream(), stream_seen()
// and StreamLeaving; stream_marks.cc all else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/base/threads.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

// --- streams ---

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

// --- events ---

// Makes a context current to the calling thread for a scope; afterwards the thread's stack of
// contexts is as before. False when the driver refuses.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  explicit operator bool() const { return current_; }

 private:
  bool current_;
  bool pushed_ = false;
};

// An event belongs to the context that is current when it is created.
bool create_event(CUevent* event);

alloc::MarkState state_of(CUevent event, CUcontext context);

// --- marks ---

class StreamMarks {
 public:
  // For a new context. The events of the slot's earlier context ended with that one.
  void init(CUcontext context);

  // False if a mark would not cover all work. It may succeed again after the program has
  // synchronised the context.
  bool mark(alloc::Mark* out);
  // False if no mark can be made before the program's next synchronisation. Any thread.
  bool possible() const;
  alloc::MarkState query(alloc::Mark mark);
  void forget(alloc::Mark mark);

  // A stream of the context is missing from the registry. There may be more, so from now on no
  // marks are made. Any thread.
  void stream_unseen() { unseen_.store(true); }

  // Records the last event of a stream of this context; false when that is not possible.
  bool stream_leaves(CUstream stream);

  // The program has waited for the whole context, so the registry's first `losses` losses no longer
  // matter to it. Any thread.
  void synchronised(uint64_t losses);

 private:
  struct Event {
    CUevent handle;
    Event* next;
  };
  struct Group {
    bool used;
    Event* events;
    uint64_t last_events;  // queued_ when the mark was made: as many must have passed
  };
  static constexpr int kGroups = alloc::MemorySource::kMostMarks + 1;
  static constexpr int kMaxEvents = 8192;

  bool record_all(Group& group);
  Event* record(CUstream stream);
  Event* take_event();
  void put_back(Event* event);
  alloc::MarkState poll_last_events(uint64_t target);

  CUcontext context_;
  std::atomic<uint64_t> proven_;  // the registry's first losses, which no longer matter here
  std::atomic<bool> unseen_;      // stream_unseen()
  Group groups_[kGroups];
  Event* events_;  // kMaxEvents of them, mapped when the first is needed and kept
  int created_;    // how many of them have a handle: the first ones
  Event* spare_;
  Event* first_;  // the last events of destroyed streams, oldest first
  Event** end_;
  uint64_t queued_, passed_;  // how many last events were ever queued, and have passed
};

}  // namespace cistern::shim
