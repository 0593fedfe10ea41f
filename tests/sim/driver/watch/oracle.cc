// SPDX-License-Identifier: Apache-2.0
#include "watch/oracle.h"

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/settings.h"
#include "exec/context.h"
#include "exec/current.h"
#include "exec/engine.h"
#include "exec/event.h"
#include "memory/allocation.h"
#include "watch/findings.h"
#include "watch/shadow.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

// What a program holds.
struct Held {
  size_t bytes;
  Context* owner;      // of device memory
  Context* waits_for;  // a free of it waits for that context's work
};
struct Freed {
  size_t bytes;
  VectorClock promised;  // what its free came after
};
struct Meeting {
  MarkerRef kernel;
  bool over = false;
};

// Work that a thread is handing over. Only once the call is back, others that free come behind it.
struct Begun {
  MarkerRef work;
  VectorClock before;                    // of its stream
  std::vector<const Context*> others{};  // whose memory it touches
};

struct Oracle {
  bool meet = false;
  uint64_t calls = 0;                     // of the program that have begun
  std::map<uint64_t, uint64_t> freed_at;  // by thread, how many when it was last back from a free
  std::map<CUdeviceptr, Held> held;       // by address
  std::map<CUdeviceptr, Freed> freed;     // by address, the last free of each
  std::vector<MarkerRef> visible;         // work that the host can see
  std::set<uint64_t> tied;       // contexts whose work touched another one's memory, and those
  std::list<Meeting*> meetings;  // kernels under way that wait for another one to begin
  std::map<const Context*, VectorClock> touched;  // what of others its memory is touched by
  std::map<const Context*, VectorClock> locked;   // what frees that are back held its lock for
  std::map<uint64_t, std::vector<Begun>> begun;   // by thread, work whose call is not back
  std::map<const void*, VectorClock> told;        // what threads tell each other
  VectorClock awaited;                            // what the program has ever begun to wait for
};

Oracle& oracle() {
  static Oracle& only = *new Oracle;
  return only;
}

// What the calling thread knows by the promise, and the call of the program's that it is in.
struct Knowing {
  VectorClock promised;
  std::string told;
  bool submits = false, frees = false;
  bool refused = false;  // memory, since it did anything else
  CUdeviceptr address = 0;
  std::optional<Held> freed;       // what it frees
  Context* owner = nullptr;        // of that
  uint64_t call = 0;               // its number
  VectorClock until;               // what the free comes after
  std::vector<MarkerRef> visible;  // of that, what the host can see
  std::set<const Event*> asked;    // events of the pool's, since it did anything else
};
thread_local Knowing t_knows;

bool in_host_memory(const Access& access) {
  const auto found = find_allocation(access.address);
  return found && (is_host(found->kind) || found->kind == MemoryKind::kManaged);
}

bool host_sees(const Work& work) {
  return work.calls_host || std::any_of(work.accesses.begin(), work.accesses.end(), in_host_memory);
}

// The context of device memory. Null: no free of it would wait, or it would in all contexts.
Context* owner_of(CUdeviceptr address) {
  const auto& held = oracle().held;
  auto block = held.upper_bound(address);
  if (block != held.begin() && address < std::prev(block)->first + std::prev(block)->second.bytes) {
    return std::prev(block)->second.owner;
  }
  const auto found = find_allocation(address);
  return found && !is_host(found->kind) ? found->context : nullptr;
}

// Contexts whose memory work of another one touches.
std::vector<const Context*> others_in(const Stream& stream, const Work& work) {
  std::vector<const Context*> others;
  for (const Access& access : work.accesses) {
    const Context* owner = owner_of(access.address);
    if (owner == nullptr || owner == &stream.context) continue;
    oracle().tied.insert({stream.context.id(), owner->id()});
    others.push_back(owner);
  }
  return others;
}

// Whether the wait is the program's own. All its calls that only wait are told.
bool is_of_program(Call call) {
  switch (call) {
    case Call::cuCtxSynchronize:
    case Call::cuStreamSynchronize:
    case Call::cuStreamSynchronize_ptsz:
    case Call::cuEventSynchronize:
    case Call::cuMemFree_v2:
    case Call::cuMemFreeHost:
      return t_knows.told == info(call).symbol;
    default:
      return true;
  }
}

// What is handed over stays so.
void settle(const Begun& begun) {
  for (const Context* other : begun.others) oracle().touched[other].join(begun.work->promised);
}

// Null: the call that handed this work over is back.
const Begun* begun_of(const Marker& work) {
  for (const auto& [thread, works] : oracle().begun) {
    for (const Begun& one : works) {
      if (one.work.get() == &work) return &one;
    }
  }
  return nullptr;
}

// What came last in a stream, but for what is still being handed over.
const VectorClock& settled(const Marker& tail) {
  const Begun* begun = begun_of(tail);
  return begun == nullptr ? tail.promised : begun->before;
}

// What a free that begins now comes behind.
VectorClock settled_before_free() {
  VectorClock all;
  const auto add = [&](const Context& context) {
    context.for_each_stream([&](const StreamRef& stream) {
      if (stream->tail != nullptr) all.join(settled(*stream->tail));
    });
    for (const Order* order : {&context.barrier, &context.leftovers, &context.free_leftovers}) {
      all.join(order->promised);
    }
    all.join(oracle().touched[&context]);
  };
  if (t_knows.owner != nullptr) {
    add(*t_knows.owner);
  } else {
    for (const Context* context : living_contexts()) add(*context);
  }
  return all;
}

// What the driver's own free may wait for at this moment.
VectorClock covered_by_free() {
  VectorClock all;
  const auto add = [&](Context& context) {
    all.join(context.unfinished().promised);
    all.join(context.touched_by_others.promised);
  };
  if (t_knows.owner != nullptr) {
    add(*t_knows.owner);
  } else {
    for (Context* context : living_contexts()) add(*context);
  }
  return all;
}

// What one thread was handing over during the last free of another one may have been in front of
// it.
bool is_beside_free(const Marker& work, uint64_t by, uint64_t freed_by) {
  const auto freed = oracle().freed_at.find(freed_by);
  return by != freed_by && freed != oracle().freed_at.end() && work.call <= freed->second;
}

// A wait for this work that is no part of the promise, and accepted all the same.
bool is_excused(Call call, const Marker& marker) {
  const Operation& work = *marker.by;
  // Memory is short: what earlier work still uses would serve the request.
  if (t_knows.refused) return true;
  // Memory goes back to the driver, whose free waits for all work of the context, or for its place
  // in a stream of the pool's own.
  if (call == Call::cuMemFree_v2 || call == Call::cuMemFreeHost) return true;
  if (work.call == Call::cuMemFreeAsync) return true;
  // A request waits for memory that is about to be free, no longer than the driver would need to
  // allocate. How much is free is looked at in each context in turn, without a wait.
  for (Call request :
       {Call::cuMemAlloc_v2, Call::cuMemAllocAsync, Call::cuMemHostAlloc, Call::cuMemGetInfo_v2}) {
    if (t_knows.told == info(request).symbol) return true;
  }
  // A thread waits for what another one owes: it may have been told of the free, in a way that
  // nobody sees. It does so for a limited time, and from then on every free waits.
  const uint64_t self = thread_number();
  if (work.thread != self) return true;
  for (const auto& [thread, calls] : oracle().freed_at) {
    if (is_beside_free(marker, self, thread)) return true;
  }
  // Contexts between which copies went are tied from then on, whichever way: a free in one of them
  // waits for all work of the other one.
  return t_knows.frees && oracle().tied.contains(work.context_id);
}

void begin_to_wait(const VectorClock& promised) {
  Oracle& all = oracle();
  if (!all.meet) return;
  all.awaited.join(promised);
  for (Meeting* meeting : all.meetings) meeting->over |= promised.covers(meeting->kernel->at);
  progress().notify_all();
}

// The thread waits for this in a call that is not the program's own wait.
void judge_wait_of_pool(Call call, const Order& order) {
  std::optional<VectorClock> by_free;
  for (const MarkerRef& marker : order.pending) {
    if (reached(marker) || t_knows.promised.covers(marker->at)) continue;
    if (is_excused(call, *marker)) continue;
    if (t_knows.frees && !by_free) by_free = covered_by_free();
    if (by_free && by_free->covers(marker->at)) continue;
    report_added(*marker->by, "the host in", call, t_knows.told.c_str());
  }
}

// Another thread may get the memory before the call that frees it is back.
void begin_free(CUdeviceptr address) {
  Oracle& all = oracle();
  const auto held = all.held.find(address);
  t_knows.freed = {};
  // No page of CUDA's says for which context's work a free of stream-ordered memory waits.
  t_knows.owner = held == all.held.end() ? owner_of(address) : held->second.waits_for;
  t_knows.until = held == all.held.end() ? VectorClock{} : settled_before_free();
  if (held == all.held.end()) return;
  t_knows.freed = held->second;
  Freed& freed = all.freed[address] = {held->second.bytes, t_knows.promised};
  freed.promised.join(t_knows.until);
  all.held.erase(held);
}

void free_failed() {
  if (!t_knows.freed) return;
  oracle().freed.erase(t_knows.address);
  oracle().held.try_emplace(t_knows.address, *t_knows.freed);
}

void judge_return(CUresult code) {
  if (code != CUDA_SUCCESS) return free_failed();
  for (const MarkerRef& marker : t_knows.visible) {
    if (!reached(marker)) {
      report_unfinished(*marker->by, t_knows.told.c_str(), t_knows.address);
    }
  }
  Oracle& all = oracle();
  all.freed_at[thread_number()] = all.calls;
  if (t_knows.owner != nullptr) all.locked[t_knows.owner].join(t_knows.until);
  t_knows.promised.join(t_knows.until);
}

}  // namespace

void start_judging(bool meet) {
  oracle().meet = meet;
  g_judging = true;
}

void promise(Stream& stream, Work& work) {
  Oracle& all = oracle();
  Marker& done = *work.done;
  done.promised = work.after.promised;
  if (!work.of_pool && (t_knows.submits || t_knows.told.empty())) {
    done.promised.join(t_knows.promised);
    t_knows.asked.clear();
    t_knows.refused = false;
  }
  done.promised.set(done.at);
  done.call = t_knows.call;
  if (host_sees(work)) {
    std::erase_if(all.visible, reached);
    all.visible.push_back(work.done);
  }
  Begun begun{work.done, stream.tail == nullptr ? VectorClock{} : settled(*stream.tail)};
  if (several_contexts()) begun.others = others_in(stream, work);
  t_knows.submits ? all.begun[thread_number()].push_back(std::move(begun)) : settle(begun);
}

void judge_stream_wait(const Order& event, const VectorClock& known) {
  for (const MarkerRef& marker : event.pending) {
    const bool promised = t_knows.promised.covers(marker->at) || known.covers(marker->at);
    const bool beside = is_beside_free(*marker, marker->by->thread, thread_number());
    if (!reached(marker) && !promised && !beside) {
      report_added(*marker->by, "a stream by", Call::cuStreamWaitEvent, t_knows.told.c_str());
    }
  }
}

void judge_host_wait(Call call, const Order& order) {
  if (!is_of_program(call)) return judge_wait_of_pool(call, order);
  begin_to_wait(order.promised);
  thread_learns(order.promised);
}

void judge_question(const VectorClock& promised, bool passed) {
  passed ? thread_learns(promised) : begin_to_wait(promised);
}

void judge_query(const Event& event, bool passed) {
  if (event.of_program) {
    judge_question(event.order.promised, passed);
  } else if (!passed && !t_knows.asked.insert(&event).second) {
    judge_wait_of_pool(Call::cuEventQuery, event.order);
  }
}

void thread_learns(const VectorClock& promised) { t_knows.promised.join(promised); }

void forget_memory_of(const Context& context) {
  std::erase_if(oracle().held, [&](const auto& held) { return held.second.owner == &context; });
  oracle().touched.erase(&context);
  oracle().locked.erase(&context);
}

void thread_is_refused() { t_knows.refused = true; }

void meet_others(const Work& work) {
  Oracle& all = oracle();
  if (!all.meet || work.kernel == nullptr) return;
  std::unique_lock lock(exec_mutex());
  Meeting own{.kernel = work.done};
  for (Meeting* other : all.meetings) {
    if (work.done->promised.covers(other->kernel->at)) continue;
    other->over = true;
    own.over = true;
  }
  progress().notify_all();
  if (own.over || all.awaited.covers(work.done->at)) return;
  const auto at = all.meetings.insert(all.meetings.end(), &own);
  progress().wait(lock, [&] { return own.over; });
  all.meetings.erase(at);
}

void program_calls(std::string_view symbol, CUdeviceptr freed) {
  const std::lock_guard lock(exec_mutex());
  Oracle& all = oracle();
  t_knows.told = symbol;
  t_knows.call = ++all.calls;
  t_knows.asked.clear();
  t_knows.refused = false;
  t_knows.frees = freed != 0;
  if (!t_knows.frees) return;
  t_knows.address = freed;
  begin_free(freed);
  begin_to_wait(t_knows.until);
  for (Context* context : living_contexts()) {  // see is_excused()
    if (all.tied.contains(context->id())) begin_to_wait(context->unfinished().promised);
  }
  t_knows.visible.clear();
  // Other work that the free comes behind may come behind what is still being handed over.
  for (const MarkerRef& marker : all.visible) {
    if (reached(marker) || begun_of(*marker) != nullptr) continue;
    if (t_knows.until.covers(marker->at)) t_knows.visible.push_back(marker);
  }
}

void program_submits(std::string_view symbol) {
  program_calls(symbol, 0);
  t_knows.submits = true;
  const Context* context = settings().free_locks ? current_context() : nullptr;
  if (context == nullptr) return;
  const std::lock_guard lock(exec_mutex());
  t_knows.promised.join(oracle().locked[context]);
}

void program_returns(CUresult code) {
  const std::lock_guard lock(exec_mutex());
  if (t_knows.submits) {
    for (const Begun& begun : oracle().begun[thread_number()]) settle(begun);
    oracle().begun.erase(thread_number());
  }
  if (t_knows.frees) judge_return(code);
  t_knows.told.clear();
  t_knows.submits = t_knows.frees = false;
  t_knows.asked.clear();
}

void program_gets(CUdeviceptr address, size_t bytes, bool pinned) {
  Context* current = current_context();
  const std::lock_guard lock(exec_mutex());
  Oracle& all = oracle();
  all.held[address] = {bytes, pinned ? nullptr : current, current};
  auto at = all.freed.lower_bound(address + bytes);
  while (at != all.freed.begin()) {
    --at;
    if (at->first + at->second.bytes <= address) continue;
    t_knows.promised.join(at->second.promised);
    if (at->first >= address && at->first + at->second.bytes <= address + bytes) {
      at = all.freed.erase(at);
    }
  }
}

void program_finds_unfinished(const Order& asked) {
  const std::lock_guard lock(exec_mutex());
  for (const MarkerRef& marker : asked.pending) {
    if (!reached(marker) && t_knows.promised.covers(marker->at)) {
      report_unfinished(*marker->by, t_knows.told.c_str(), /*freed=*/0);
    }
  }
}

void program_tells(const void* of) {
  const std::lock_guard lock(exec_mutex());
  oracle().told[of].join(t_knows.promised);
}

void program_hears(const void* of) {
  const std::lock_guard lock(exec_mutex());
  thread_learns(oracle().told[of]);
}

}  // namespace simcuda
