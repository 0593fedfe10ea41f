// SPDX-License-Identifier: Apache-2.0
// The hooks of forwarded.def: the driver's own function, after or before what its traits say. In
// the common case, nothing was freed and there is one context, that costs a launch two loads; other
// work looks for contexts that no hook saw made, too.
#include <string_view>
#include <type_traits>

#include "shim/entry/faces.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/debts.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/captures/graph_contexts.h"
#include "shim/order/captures/graphs.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/unseen.h"
#include "shim/order/participants.h"
#include "shim/order/streams/streams.h"
#include "shim/order/submissions.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

constexpr unsigned kSubmits = 1, kMayWaitForHost = 2, kTouches = 4, kTakesMemory = 8,
                   kEditsGraph = 16, kLaunchesGraph = 32, kWaitsForDevice = 64, kRecords = 128,
                   kDeviceOnly = 256, kEndsUse = 512, kReachesHost = 1024, kNamesVariable = 2048,
                   kLooksForUnseen = 4096;  // from the name: not a launch, which must cost nothing

// What a function means by stream 0 is told by its name (ask.h).
constexpr bool means_per_thread(std::string_view symbol) {
  return symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
}

constexpr unsigned looks_for_unseen(std::string_view symbol) {
  return symbol.starts_with("cuLaunch") ? 0 : kLooksForUnseen;
}

// Contexts that a call names, outright or by a stream (contexts/unseen.h).
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

// `variable`: the first argument of a call that asked for one.
template <typename Variable, typename... Others>
void note_variable(Variable* variable, Others...) {
  unsigned managed = 0;
  const auto ask = driver().cuPointerGetAttribute;
  const bool known = ask != nullptr && variable != nullptr &&
                     ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, *variable) == CUDA_SUCCESS;
  if (known && managed != 0) host_comes_within_reach();
}

// The driver took the work, and there are several contexts or streams are followed. What is
// captured is no work yet.
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

// A launch that may begin before the work in front of it in its stream has ended.
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

// What the host sees of the work that a call hands over (order/submissions.h).
template <unsigned kTraits, typename... Arguments>
[[gnu::always_inline]] inline HostSees host_sees(const Arguments&... arguments) {
  if constexpr ((kTraits & kRecords) != 0) return HostSees::nothing;
  if constexpr ((kTraits & kDeviceOnly) == 0) return HostSees::all;
  bool overlapping = false;
  const auto look = [&](const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) overlapping = overlaps(argument);
  };
  (look(arguments), ...);
  return overlapping ? HostSees::all : HostSees::if_within_reach;
}

// The debts that work is put behind (order/barrier/debts.h) are waited for by its stream. Where the
// call is about several streams, or names none though it is about more than memory, the host waits.
template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::noinline]] void put_behind_debts(Arguments... arguments) {
  if (!active()) return;
  bool on_host = (kTraits & (kDeviceOnly | kRecords)) == 0;
  CUstream stream = Kind::name(nullptr);
  const auto look = [&](const auto& argument) {
    using Argument = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<Argument, CUstream>) stream = Kind::name(argument);
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      on_host = on_host || argument == nullptr || overlaps(argument);
      if (argument != nullptr) stream = Kind::name(argument->hStream);
    }
  };
  (look(arguments), ...);
  on_host ? static_cast<void>(pay_debts()) : order_behind_debts(stream);
}

template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::always_inline]] inline CUresult forward(CUresult (*real)(Arguments...),
                                               std::type_identity_t<Arguments>... arguments) {
  constexpr bool kWork = (kTraits & (kSubmits | kRecords)) != 0;
  if constexpr ((kTraits & kReachesHost) != 0) host_comes_within_reach();
  if constexpr ((kTraits & kEndsUse) != 0) pay_debts();
  if constexpr ((kTraits & kSubmits) != 0) mark_frees((kTraits & kMayWaitForHost) != 0);
  if constexpr (kWork) {
    note_submission(host_sees<kTraits>(arguments...));
    if (any_debts()) [[unlikely]]
      put_behind_debts<kTraits, Kind>(arguments...);
  }
  CUresult result = ask(real, arguments...);
  if constexpr ((kTraits & kTakesMemory) != 0) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
      result = once_more_with_idle_memory([=] { return ask(real, arguments...); });
  }
  if constexpr (kWork) note_submission(host_sees<kTraits>(arguments...));
  if constexpr ((kTraits & kNamesVariable) != 0) {
    if (result == CUDA_SUCCESS && !host_within_reach.load()) note_variable(arguments...);
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
