// SPDX-License-Identifier: Apache-2.0
//
// A stream, and how its work is ordered: within itself, against its context's legacy stream, and
// against waits on the whole context. Fields below the line are guarded by exec_mutex().
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/cuda.h"
#include "exec/work.h"
#include "memory/taken.h"
#include "watch/lane.h"

namespace simcuda {

class Context;
struct Capture;
struct GraphNode;

struct Stream {
  enum class Role : uint8_t { kLegacy, kPerThread, kCreated };

  Stream(Context& owner, Role role, unsigned flags, int priority);

  bool blocking() const { return role != Role::kLegacy && !(flags & CU_STREAM_NON_BLOCKING); }

  Context& context;
  const Role role;
  const unsigned flags;
  const int priority;
  const uint64_t id;
  const uint64_t life;  // the context's id: a primary context has one after the other
  CUstream handle = nullptr;
  TakenRef taken{};
  // ------------------------------------------------------------------ guarded by exec_mutex()
  MarkerRef tail;  // after the last work given to it
  Lane lane;       // the watcher's
  std::deque<Work> queue;
  std::condition_variable wake;
  bool has_worker = false;
  std::shared_ptr<Capture> capture;  // null unless it is being captured
  std::vector<GraphNode*> frontier;  // captured nodes the next one depends on
  // What the last kernel comes after, unless other work came behind it (exec/out_of_order.h).
  std::optional<Order> before_kernel;
  size_t early_kernels = 0;
  std::vector<std::shared_ptr<Stream>> helpers;  // for work that does not keep its place
};

using StreamRef = std::shared_ptr<Stream>;

enum class DefaultStream : uint8_t { kLegacy, kPerThread };

// The stream a handle means to a call with this kind of default stream; null for a handle that
// names nothing. The current context must exist.
StreamRef resolve_stream(CUstream handle, DefaultStream kind);

CUresult create_stream(Call call, Context& context, unsigned flags, int priority, CUstream* handle);
CUresult destroy_stream(CUstream handle);

enum class Wait : uint8_t { kNo, kYes };

// Gives work to a stream, or records it where the stream is being captured. kYes: returns when it
// has run, which a capture does not allow. `marker`, if given, becomes the point after the work.
CUresult submit(const StreamRef& stream, Work work, Wait wait = Wait::kNo,
                MarkerRef* marker = nullptr);

// Everything given to this stream so far, and what that is implicitly ordered after.
CUresult stream_order(const StreamRef& stream, Order* order);

// What new work in this stream comes after, by the edges the program made. Empty unless clocks are
// kept.
VectorClock known_to(const StreamRef& stream);
// The same by the order that the driver alone would make (watch/oracle.h). Caller holds
// exec_mutex().
VectorClock promised_to(const Stream& stream);

}  // namespace simcuda
