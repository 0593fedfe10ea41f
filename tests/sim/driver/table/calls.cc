// SPDX-License-Identifier: Apache-2.0
//
// The simulated part of the call table. Each row's type is checked against CUDA's own typedef for
// that name and version, so a row with the wrong version does not compile. A toolkit older
// than 13.0 lacks some of the typedefs: there nothing is checked; and before 13.5 nothing of what
// came after 13.0.
#include "table/calls.h"

#include <iterator>
#include <type_traits>

#include "base/cuda.h"
#include "simcuda/unknown.h"

// After the driver's own view of cuda.h, or the typedefs get the application's.
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

namespace simcuda {
namespace {

#if CUDA_VERSION >= 13000
#if CUDA_VERSION < 13050
#define NEWER(symbol, name, version, kind, traits)
#endif
#define OWN(symbol, name, version, kind, traits)
#define CALL(symbol, name, version, kind, traits) SIM_CHECK_##kind(symbol, name, version)
#define SIM_CHECK_kAny(symbol, name, version) \
  static_assert(std::is_same_v<decltype(&::symbol), PFN_##name##_v##version>);
#define SIM_CHECK_kLegacy SIM_CHECK_kAny
#define SIM_CHECK_kPtds(symbol, name, version) \
  static_assert(std::is_same_v<decltype(&::symbol), PFN_##name##_v##version##_ptds>);
#define SIM_CHECK_kPtsz(symbol, name, version) \
  static_assert(std::is_same_v<decltype(&::symbol), PFN_##name##_v##version##_ptsz>);
// Of headers that need those of other systems (shim/toolkit/cuda.h).
using PFN_cuGLCtxCreate_v3020 = CUresult(CUDAAPI*)(CUcontext*, unsigned, CUdevice);
using PFN_cuVDPAUCtxCreate_v3020 = CUresult(CUDAAPI*)(CUcontext*, unsigned, CUdevice, unsigned,
                                                      void*);
#include "table/calls.def"
#endif

const CallInfo kSimulated[] = {
#define CALL(symbol, name, version, kind, traits) \
  {#symbol, #name, version, StreamKind::kind, (traits), reinterpret_cast<void*>(&::symbol)},
#include "table/calls.def"
};

}  // namespace

const CallInfo& info(Call call) { return kSimulated[static_cast<size_t>(call)]; }

CallTable simulated_calls() { return {std::begin(kSimulated), std::end(kSimulated)}; }

}  // namespace simcuda
