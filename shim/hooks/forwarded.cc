// SPDX-License-Identifier: Apache-2.0
// The hooks of forwarded.def: they call the driver's function; its traits say what else to do
// before and after it. In the common case (nothing freed, one context) that costs a launch two
// loads. Work other than launches also checks for contexts whose creation no hook saw.
#include <string_view>
#include <type_traits>

#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/order/submissions.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

// The traits of a function, from its row in forwarded.def.
enum : unsigned {
  kSubmits = 1,
  kMayWaitForHost = 2,
  kTouches = 4,
  kTakesMemory = 8,
  kEditsGraph = 16,
  kLaunchesGraph = 32,
  kWaitsForDevice = 64,
  kRecords = 128,
  kDeviceOnly = 256,
  kEndsUse = 512,
  kSharesWithHost = 1024,
  kNamesVariable = 2048,
  kOutOfOrder = 4096,
  kPinsMemory = 8192,
  kCarries = 16384,
  kUnloads = 32768,
  kDescribes = 65536,
  kAwaits = 131072,
  kLooksForUnseen = 262144,  // derived from the name: all but launches, which must stay cheap
};

// The suffix of a function's name says what it means by stream 0 (ask.h).
constexpr bool means_per_thread(std::string_view symbol) {
  return symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
}

constexpr unsigned looks_for_unseen(std::string_view symbol) {
  return symbol.starts_with("cuLaunch") ? 0 : unsigned{kLooksForUnseen};
}

// Notices the contexts that a call names, directly or by a stream (contexts/context_life.h).
template <typename Kind, typename Argument>
void notice_in(const Argument& argument) {
  if constexpr (std::is_same_v<Argument, CUstream>) {
    notice_context_of(Kind::name(argument));
  } else if constexpr (std::is_same_v<Argument, CUcontext>) {
    notice_context(argument);
  } else if constexpr (std::is_same_v<Argument, const CUDA_MEMCPY3D_PEER*>) {
    notice_context(argument->srcContext);
    notice_context(argument->dstContext);
  }
}

template <typename Kind, typename... Arguments>
[[gnu::noinline]] void notice_in_all(Arguments... arguments) {
  if (!active()) return;
  current_context();
  (notice_in<Kind>(arguments), ...);
}

template <typename Kind, typename Argument>
void note_stream(const Argument& argument) {
  if constexpr (std::is_same_v<Argument, CUstream>) {
    stream_seen(Kind::name(argument));
  } else if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
    stream_seen(Kind::name(argument->hStream));
  }
}

// `variable`: where the driver wrote the address that the program asked for.
template <typename Variable, typename... Others>
void note_variable(Variable* variable, Others...) {
  unsigned managed = 0;
  const auto ask = driver().cuPointerGetAttribute;
  const bool known = ask != nullptr && variable != nullptr &&
                     ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, *variable) == CUDA_SUCCESS;
  if (known && managed != 0) everything_becomes_visible();
}

// To be called once the driver has accepted the work, if there are several contexts or if streams
// are followed. Captured calls are not work yet.
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] void handed_over(Arguments... arguments) {
  constexpr bool kAll = (kTraits & kTouches) != 0;
  if (!active()) return;
  if (streams_followed()) (note_stream<Kind>(arguments), ...);
  const bool captured = capture_gate().capturing();
  if (!several_contexts() || (!kAll && !captured)) return;
  const Participants participants = Participants::of<Kind, kAll>(arguments...);
  const bool recorded = captured && participants.has_stream() &&
                        note_captured_work(participants.stream(), participants.contexts());
  if (!recorded && kAll) participants.tie();
}

// Whether the launch may begin before the earlier work of its stream has ended.
bool overlaps(const CUlaunchConfig* config) {
  if (config == nullptr || config->attrs == nullptr) return false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttributeID id = config->attrs[i].id;
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
        id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      return true;
    }
  }
  return false;
}

// The program pinned or registered host memory.
void note_pinned(void* memory, size_t bytes, unsigned) {
  host_memory_appeared(reinterpret_cast<uintptr_t>(memory), bytes);
  CUdeviceptr there = 0;
  const auto ask = driver().cuMemHostGetDevicePointer_v2;
  const bool known = ask != nullptr && ask(&there, memory, 0) == CUDA_SUCCESS;
  if (known && there != reinterpret_cast<CUdeviceptr>(memory)) everything_becomes_visible();
}

// A small copy to the device may carry an address of host memory, for a kernel to use. Memory that
// this thread may not be able to read is not examined.
void look_at_source(CUdeviceptr source, size_t bytes) {
  if (bytes > kSmallCopy || everything_is_visible.load(std::memory_order_relaxed)) return;
  CUmemorytype type = CU_MEMORYTYPE_HOST;  // the default for memory that the driver does not know
  unsigned managed = 0;
  const auto ask = driver().cuPointerGetAttribute;
  if (ask == nullptr) return;
  ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, source);
  ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, source);
  const bool readable = type == CU_MEMORYTYPE_HOST && managed == 0;
  if (readable) look_at_copied(reinterpret_cast<const void*>(source), bytes);
}
template <typename Source, typename... Others>
void look_at_source(CUdeviceptr, Source source, size_t bytes, Others...) {
  if constexpr (std::is_pointer_v<Source>) {
    look_at_source(reinterpret_cast<CUdeviceptr>(source), bytes);
  } else {
    look_at_source(source, bytes);
  }
}

// Whether the host sees what a copy or a fill does: whether this argument may be an address of host
// memory.
template <typename Argument>
bool shows(const Argument& argument) {
  if constexpr (std::is_same_v<Argument, CUdeviceptr>) {
    return lies_in_host_memory(argument);
  } else if constexpr (std::is_same_v<Argument, void*> || std::is_same_v<Argument, const void*>) {
    return lies_in_host_memory(reinterpret_cast<uintptr_t>(argument));
  } else if constexpr (std::is_same_v<Argument, const CUDA_MEMCPY2D*> ||
                       std::is_same_v<Argument, const CUDA_MEMCPY3D*>) {
    return argument != nullptr && (shows(argument->srcHost) || shows(argument->dstHost) ||
                                   shows(argument->srcDevice) || shows(argument->dstDevice));
  } else {
    return false;
  }
}

// The same for what a texture or a tensor map describes to kernels.
template <typename Argument>
bool describes(const Argument& argument) {
  if constexpr (std::is_same_v<Argument, const CUDA_RESOURCE_DESC*>) {
    if (argument == nullptr) return false;
    const auto& of = argument->res;
    return (argument->resType == CU_RESOURCE_TYPE_LINEAR && shows(of.linear.devPtr)) ||
           (argument->resType == CU_RESOURCE_TYPE_PITCH2D && shows(of.pitch2D.devPtr));
  } else {
    return shows(argument);
  }
}

template <typename... Arguments>
[[gnu::noinline]] bool arguments_show(Arguments... arguments) {
  return everything_is_visible.load(std::memory_order_relaxed) || (shows(arguments) || ...);
}

struct Launch {
  CUfunction kernel = nullptr;
  void** parameters = nullptr;
  void** extra = nullptr;
  bool overlapping = false;
  int lists = 0;

  void note(CUfunction argument) { kernel = argument; }
  void note(void** argument) { (lists++ == 0 ? parameters : extra) = argument; }
  void note(const CUlaunchConfig* argument) { overlapping = overlaps(argument); }
  template <typename Other>
  void note(const Other&) {}
};

bool awaits_visible_work(CUstream stream, CUevent, unsigned) {
  return may_await_visible_work(stream);
}

// Whether the host sees the work that a call hands over (order/barrier/visible_work.h).
template <unsigned kTraits, typename... Arguments>
[[gnu::always_inline]] inline bool is_visible(Arguments... arguments) {
  if constexpr ((kTraits & kRecords) != 0) return false;
  if constexpr ((kTraits & kAwaits) != 0) {
    if (awaits_visible_work(arguments...)) return true;
  }
  if constexpr ((kTraits & kDeviceOnly) == 0) return true;
  if constexpr ((std::is_same_v<Arguments, CUfunction> || ...)) {
    Launch launch;
    (launch.note(arguments), ...);
    return launch.overlapping ||
           (may_be_visible() && kernel_is_visible(launch.kernel, launch.parameters, launch.extra));
  } else {
    return may_be_visible() && arguments_show(arguments...);
  }
}

// Sets *stream to the one stream in which the call's work runs, under its name without a suffix.
// False if there is no such stream, or if the work does not keep its order there.
template <unsigned kTraits, typename Kind, typename... Arguments>
bool one_stream(CUstream* stream, Arguments... arguments) {
  bool one = (kTraits & kDeviceOnly) != 0 || (std::is_same_v<Arguments, CUstream> || ...);
  if constexpr ((kTraits & kOutOfOrder) != 0) one = false;
  *stream = Kind::name(nullptr);
  const auto look = [&](const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, CUstream>) *stream = Kind::name(argument);
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      one = argument != nullptr && !overlaps(argument);
      if (argument != nullptr) *stream = Kind::name(argument->hStream);
    }
  };
  (look(arguments), ...);
  return one;
}

// Puts the work behind the debts (order/barrier/work.h): its stream waits for them. True if the
// submission has to be noted again.
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] bool put_behind_debts(Arguments... arguments) {
  if (!active()) return false;
  CUstream stream;
  const bool one = one_stream<kTraits, Kind>(&stream, arguments...);
  if (one || others_debts()) return order_behind_debts(stream);
  pay_debts(PaidBy::submission);
  return false;
}

// Records an event behind work that the host sees (order/barrier/visible_work.h).
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] void follow(CUresult result, Arguments... arguments) {
  CUstream stream;
  const bool one = one_stream<kTraits, Kind>(&stream, arguments...);
  if (result != CUDA_SUCCESS || !one || !follow_visible_work(stream)) note_submission(true);
}

constexpr uintptr_t kNobodyKnown = ~uintptr_t{0};  // never a value of who_is_quiet()

// How work was submitted; note_handed() needs it after the driver call.
enum class Handed : uint8_t { quietly, plainly, visibly, followed };

// To be called before work that differs from the last work, or that is not quiet
// (order/submissions.h).
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] Handed prepare(Arguments... arguments) {
  if constexpr ((kTraits & kCarries) != 0) {
    if (any_host_memory.load(std::memory_order_relaxed)) look_at_source(arguments...);
  }
  const bool visible = is_visible<kTraits>(arguments...);
  note_submission(/*visible=*/false);
  const bool followed = visible && submits_alone() && debts_possible() &&
                        !everything_is_visible.load(std::memory_order_relaxed);
  if (visible && !followed) note_submission(/*visible=*/true);
  while (any_debts() && put_behind_debts<kTraits, Kind>(arguments...)) {
    note_submission(visible && !followed);
  }
  if (!visible) quieten();
  return followed ? Handed::followed : visible ? Handed::visibly : Handed::plainly;
}

// Work that was submitted quietly has not been checked for visibility: no work could be visible, or
// the work counted as that of several threads. That has ended since, so the check is made now.
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] void note_handed(Handed how, CUresult result, Arguments... arguments) {
  const bool quietly = how == Handed::quietly;
  const bool visible = quietly ? is_visible<kTraits>(arguments...) : how == Handed::visibly;
  const bool is_work = (kTraits & kRecords) == 0 && result == CUDA_SUCCESS;
  is_work ? note_handed_over(visible) : note_submission(visible);
  if (how == Handed::followed) follow<kTraits, Kind>(result, arguments...);
}

// Whether such work can be submitted without checks if the thread is quiet. What a copy carries is
// always checked: it affects all later work, of every thread.
template <unsigned kTraits, typename... Arguments>
[[gnu::always_inline]] inline bool may_be_quiet(Arguments... arguments) {
  if constexpr ((kTraits & (kDeviceOnly | kRecords)) == 0) return false;
  if constexpr ((kTraits & kAwaits) != 0) {
    if (several_contexts()) return false;
  }
  if constexpr ((kTraits & kCarries) != 0) {
    if (any_host_memory.load(std::memory_order_relaxed)) return false;
  }
  bool overlapping = false;
  const auto look = [&](const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) overlapping = overlaps(argument);
  };
  (look(arguments), ...);
  return !overlapping;
}

template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::always_inline]] inline CUresult forward(CUresult (*real)(Arguments...),
                                               std::type_identity_t<Arguments>... arguments) {
  constexpr bool kWork = (kTraits & (kSubmits | kRecords)) != 0;
  Handed how = Handed::quietly;
  if constexpr ((kTraits & kSharesWithHost) != 0) everything_becomes_visible();
  if constexpr ((kTraits & kEndsUse) != 0) pay_debts();
  if constexpr ((kTraits & kUnloads) != 0) functions_changed();
  if constexpr ((kTraits & kDescribes) != 0) {
    if (any_host_memory.load(std::memory_order_relaxed) && (describes(arguments) || ...)) {
      everything_becomes_visible();
    }
  }
  if constexpr ((kTraits & kSubmits) != 0) mark_frees((kTraits & kMayWaitForHost) != 0);
  [[maybe_unused]] uintptr_t quiet = 0;
  if constexpr (kWork) {
    quiet = who_is_quiet();
    if (!covers_this_thread(quiet) || !may_be_quiet<kTraits>(arguments...)) [[unlikely]] {
      how = prepare<kTraits, Kind>(arguments...);
      quiet = kNobodyKnown;
    }
  }
  CUresult result = ask(real, arguments...);
  if constexpr ((kTraits & kTakesMemory) != 0) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
      result = once_more_with_idle_memory([=] { return ask(real, arguments...); });
  }
  if constexpr (kWork) {
    if (who_is_quiet() != quiet) [[unlikely]]
      note_handed<kTraits, Kind>(how, result, arguments...);
  }
  if constexpr ((kTraits & kNamesVariable) != 0) {
    if (result == CUDA_SUCCESS && !everything_is_visible.load()) note_variable(arguments...);
  }
  if constexpr ((kTraits & kPinsMemory) != 0) {
    if (result == CUDA_SUCCESS) note_pinned(arguments...);
  }
  if constexpr ((kTraits & kEditsGraph) != 0) {
    if (result == CUDA_SUCCESS) graph_contexts_changed();
  }
  if constexpr ((kTraits & kWaitsForDevice) != 0) {
    if (result == CUDA_SUCCESS) watch_synchronised();
  }
  if constexpr ((kTraits & kLaunchesGraph) != 0) {
    if (result == CUDA_SUCCESS) graph_launched();
  }
  if constexpr (kWork && (kTraits & kLooksForUnseen) != 0) {
    if (result == CUDA_SUCCESS) notice_in_all<Kind>(arguments...);
  }
  if constexpr ((kTraits & kSubmits) != 0) {
    if (submissions_watched() && result == CUDA_SUCCESS) [[unlikely]]
      handed_over<kTraits, Kind>(arguments...);
  }
  return result;
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

#define CISTERN_ARGUMENTS(...) __VA_ARGS__
#define CISTERN_FORWARDED(symbol, parameters, arguments, traits)                   \
  CUresult symbol parameters {                                                     \
    using Kind = std::conditional_t<means_per_thread(#symbol), PerThread, Legacy>; \
    constexpr unsigned kAll = (traits) | looks_for_unseen(#symbol);                \
    return forward<kAll, Kind>(driver().symbol, CISTERN_ARGUMENTS arguments);      \
  }
#include "shim/forwarded.def"
#undef CISTERN_ARGUMENTS
