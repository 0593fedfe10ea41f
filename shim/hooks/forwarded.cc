// SPDX-License-Identifier: Apache-2.0
// The hooks of forwarded.def: the driver's own function, after or before what its traits say. In
// the common case, nothing was freed and there is one context, that costs a launch two loads; other
// work looks for contexts that no hook saw made, too.
#include <string_view>
#include <type_traits>

#include "shim/entry/faces.h"
#include "shim/order/ask.h"
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
                   kLooksForUnseen = 256;  // from the name: not a launch, which must cost nothing

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

template <unsigned kTraits, typename Kind, typename... Arguments>
[[gnu::always_inline]] inline CUresult forward(CUresult (*real)(Arguments...),
                                               std::type_identity_t<Arguments>... arguments) {
  if constexpr ((kTraits & kSubmits) != 0) before_submission((kTraits & kMayWaitForHost) != 0);
  if constexpr ((kTraits & kRecords) != 0) note_submission();
  CUresult result = ask(real, arguments...);
  if constexpr ((kTraits & kTakesMemory) != 0) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]]
      result = once_more_with_idle_memory([=] { return ask(real, arguments...); });
  }
  if constexpr ((kTraits & (kSubmits | kRecords)) != 0) note_submission();
  if constexpr ((kTraits & kEditsGraph) != 0) {
    if (result == CUDA_SUCCESS) graph_contexts_changed();
  }
  if constexpr ((kTraits & kWaitsForDevice) != 0) {
    if (result == CUDA_SUCCESS) watch_synchronised();
  }
  if constexpr ((kTraits & kLaunchesGraph) != 0) {
    if (result == CUDA_SUCCESS) graph_launched();
  }
  if constexpr ((kTraits & (kSubmits | kRecords)) != 0 && (kTraits & kLooksForUnseen) != 0) {
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
