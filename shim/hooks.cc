// SPDX-License-Identifier: Apache-2.0
// Our definitions of the driver's functions. They forward: memory goes to memory.cc, the rest tells
// the pools what the program did and asks the driver. Results and error codes are the driver's.
#include "shim/hooks.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/capture_gate.h"
#include "shim/context.h"
#include "shim/cuda_api.h"
#include "shim/driver.h"
#include "shim/memory.h"
#include "shim/process.h"
#include "shim/routes.h"

#define CISTERN_HOOK(symbol, parameters, arguments) \
  extern "C" [[gnu::visibility("default")]] CUresult CUDAAPI symbol parameters;
#include "shim/hooks.def"
#undef CISTERN_HOOK

namespace cistern::shim {
namespace {

const Hook table[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) {#symbol, reinterpret_cast<void*>(&::symbol)},
#include "shim/hooks.def"
#undef CISTERN_HOOK
};

constexpr std::string_view kNames[] = {
#define CISTERN_HOOK(symbol, parameters, arguments) #symbol,
#include "shim/hooks.def"
#undef CISTERN_HOOK
};
static_assert(std::is_sorted(std::begin(kNames), std::end(kNames)), "find_hook searches by name");

// What a hook answers when the driver has no such function: only a program that calls our export
// without a driver gets here.
constexpr CUresult kNoDriver = CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;

template <typename Function, typename... Arguments>
CUresult ask(Function* real, Arguments... arguments) {
  return real == nullptr ? kNoDriver : real(arguments...);
}

// Other kinds of memory stay the driver's, but it may lack what a pool keeps idle: then the pools
// return it and the program's call is made once more.
template <typename Function, typename... Arguments>
CUresult ask_for_memory(Function* real, Arguments... arguments) {
  const CUresult result = ask(real, arguments...);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !active() || !return_idle_memory()) return result;
  return ask(real, arguments...);
}

// The stream functions that exist once per meaning of stream 0.
struct Legacy {
  static CUstream name(CUstream stream) { return stream; }
  static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
    return ask(driver().cuStreamIsCapturing, stream, status);
  }
};
struct PerThread {
  static CUstream name(CUstream stream) {
    return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
  }
  static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
    return ask(driver().cuStreamIsCapturing_ptsz, stream, status);
  }
};

// Whether a stream captures, or the driver's word that there is no such stream.
template <typename Kind>
CUresult captures(CUstream stream, bool* capturing) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = Kind::is_capturing(stream, &status);
  *capturing = result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  return result;
}

// cuda.h names no kind of memory that cuMemFreeAsync would refuse, except on a stream that
// captures: there only memory of the graph may be freed. A pool block freed this way waits for all
// earlier work, which is more than the stream's; the driver must never see it.
template <typename Kind, typename Function>
CUresult free_async(Function* real, CUdeviceptr address, CUstream stream) {
  if (!owned(address)) return ask(real, address, stream);
  bool capturing;
  const CUresult result = captures<Kind>(stream, &capturing);
  if (result != CUDA_SUCCESS) return result;
  return capturing ? CUDA_ERROR_INVALID_VALUE : cistern::shim::free(address);
}

// A capture begins: ours and the program's calls are kept apart from before it to its end.
template <typename Kind, typename Function, typename... Arguments>
CUresult begin_capture(Function* real, CUstream stream, Arguments... arguments) {
  if (!active()) return ask(real, stream, arguments...);
  CaptureGate& gate = capture_gate();
  gate.announce();
  const CUresult result = ask(real, stream, arguments...);
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  result == CUDA_SUCCESS ? gate.began(Kind::name(stream), context) : gate.withdraw();
  return result;
}

// An invalidated capture ends with an error, too, and a wrong call leaves it as it was: the stream
// knows.
template <typename Kind, typename Function>
CUresult end_capture(Function* real, CUstream stream, CUgraph* graph) {
  const CUresult result = ask(real, stream, graph);
  bool capturing = false;
  if (result != CUDA_SUCCESS) captures<Kind>(stream, &capturing);
  if (active() && !capturing) capture_gate().ended(Kind::name(stream));
  return result;
}

template <typename Function>
CUresult destroy_stream(Function* real, CUstream stream) {
  const CUresult result = ask(real, stream);
  if (result == CUDA_SUCCESS) capture_gate().ended(stream);
  return result;
}

template <typename Function>
CUresult destroy_context(Function* real, CUcontext handle) {
  Context* context = active() ? closing(handle) : nullptr;
  const CUresult result = ask(real, handle);
  result == CUDA_SUCCESS ? gone(context) : stays(context);
  return result;
}

template <typename Function>
CUresult reset_primary(Function* real, CUdevice device) {
  Context* context = active() ? closing(primary_of(device)) : nullptr;
  const CUresult result = ask(real, device);
  result == CUDA_SUCCESS ? gone(context) : stays(context);
  return result;
}

// Only the last release ends the context.
template <typename Function>
CUresult release_primary(Function* real, CUdevice device) {
  Context* context = active() ? closing(primary_of(device)) : nullptr;
  const CUresult result = ask(real, device);
  if (context == nullptr) return result;
  unsigned int flags;
  int alive = 1;
  const bool known = driver().cuDevicePrimaryCtxGetState(device, &flags, &alive) == CUDA_SUCCESS;
  result == CUDA_SUCCESS&& known&& alive == 0 ? gone(context) : stays(context);
  return result;
}

template <typename Function, typename... Arguments>
CUresult create_context(Function* real, CUcontext* out, CUdevice device, Arguments... arguments) {
  const CUresult result = ask_for_memory(real, out, arguments...);
  if (result == CUDA_SUCCESS && active()) context_appeared(*out, device);
  return result;
}

}  // namespace

HookTable hooks() { return {table, std::size(table)}; }

const Hook* find_hook(const char* symbol) {
  const auto* end = std::end(table);
  const auto* hook =
      std::lower_bound(std::begin(table), end, symbol,
                       [](const Hook& h, const char* s) { return strcmp(h.symbol, s) < 0; });
  return hook != end && strcmp(hook->symbol, symbol) == 0 ? hook : nullptr;
}

}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

// --- memory ---

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return allocate(dptr, bytesize); }

CUresult cuMemFree_v2(CUdeviceptr dptr) { return cistern::shim::free(dptr); }

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return free_async<Legacy>(driver().cuMemFreeAsync, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
  return free_async<PerThread>(driver().cuMemFreeAsync_ptsz, dptr, hStream);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return memory_info(free, total); }

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return address_range(pbase, psize, dptr);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  return export_handle(pHandle, dptr);
}

// --- other kinds of memory ---

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return ask_for_memory(driver().cuMemAllocPitch_v2, dptr, pPitch, WidthInBytes, Height,
                        ElementSizeBytes);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return ask_for_memory(driver().cuMemAllocManaged, dptr, bytesize, flags);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return ask_for_memory(driver().cuMemAllocAsync, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return ask_for_memory(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return ask_for_memory(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
  return ask_for_memory(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, hStream);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return ask_for_memory(driver().cuMemCreate, handle, size, prop, flags);
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* desc) {
  return ask_for_memory(driver().cuArrayCreate_v2, pHandle, desc);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  return ask_for_memory(driver().cuArray3DCreate_v2, pHandle, desc);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  return ask_for_memory(driver().cuMipmappedArrayCreate, pHandle, desc, levels);
}

// --- start and resolution ---

CUresult cuInit(unsigned int Flags) {
  const CUresult result = ask(driver().cuInit, Flags);
  if (result == CUDA_SUCCESS) cuda_started();
  return result;
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  const CUresult result = ask(driver().cuGetProcAddress, symbol, pfn, cudaVersion, flags);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  const CUresult result =
      ask(driver().cuGetProcAddress_v2, symbol, pfn, cudaVersion, flags, symbolStatus);
  if (result == CUDA_SUCCESS && pfn != nullptr && *pfn != nullptr) {
    reroute(symbol, cudaVersion, flags, pfn);
  }
  return result;
}

// --- synchronisation: everything handed over before the call is done after it ---

CUresult cuCtxSynchronize() {
  if (!active()) return ask(driver().cuCtxSynchronize);
  SynchroniseScope scope(nullptr);
  const CUresult result = ask(driver().cuCtxSynchronize);
  if (result == CUDA_SUCCESS) scope.succeeded();
  return result;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (!active()) return ask(driver().cuCtxSynchronize_v2, ctx);
  SynchroniseScope scope(ctx);
  const CUresult result = ask(driver().cuCtxSynchronize_v2, ctx);
  if (result == CUDA_SUCCESS) scope.succeeded();
  return result;
}

// --- contexts coming and going ---

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(driver().cuCtxCreate, pctx, dev, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(driver().cuCtxCreate_v2, pctx, dev, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* params, int count, unsigned int flags,
                        CUdevice dev) {
  return create_context(driver().cuCtxCreate_v3, pctx, dev, params, count, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                        CUdevice dev) {
  return create_context(driver().cuCtxCreate_v4, pctx, dev, params, flags, dev);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const CUresult result = ask_for_memory(driver().cuDevicePrimaryCtxRetain, pctx, dev);
  if (result == CUDA_SUCCESS && active()) {
    primary_is(dev, *pctx);
    context_appeared(*pctx, dev);
  }
  return result;
}

CUresult cuCtxDestroy(CUcontext ctx) { return destroy_context(driver().cuCtxDestroy, ctx); }

CUresult cuCtxDestroy_v2(CUcontext ctx) { return destroy_context(driver().cuCtxDestroy_v2, ctx); }

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  const CUresult result = ask(driver().cuCtxAttach, pctx, flags);
  if (result == CUDA_SUCCESS && active()) context_attached(*pctx);
  return result;
}

CUresult cuCtxDetach(CUcontext ctx) {
  if (active() && context_detached(ctx)) return ask(driver().cuCtxDetach, ctx);
  return destroy_context(driver().cuCtxDetach, ctx);
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  const CUresult result = ask(driver().cuCtxFromGreenCtx, pContext, hCtx);
  if (result == CUDA_SUCCESS && active()) green_context_appeared(*pContext);
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return release_primary(driver().cuDevicePrimaryCtxRelease, dev);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return release_primary(driver().cuDevicePrimaryCtxRelease_v2, dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return reset_primary(driver().cuDevicePrimaryCtxReset, dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return reset_primary(driver().cuDevicePrimaryCtxReset_v2, dev);
}

// --- captures ---

CUresult cuStreamBeginCapture(CUstream hStream) {
  return begin_capture<Legacy>(driver().cuStreamBeginCapture, hStream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  return begin_capture<PerThread>(driver().cuStreamBeginCapture_ptsz, hStream);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<Legacy>(driver().cuStreamBeginCapture_v2, hStream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  return begin_capture<PerThread>(driver().cuStreamBeginCapture_v2_ptsz, hStream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return begin_capture<Legacy>(driver().cuStreamBeginCaptureToGraph, hStream, hGraph, dependencies,
                               dependencyData, numDependencies, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode) {
  return begin_capture<PerThread>(driver().cuStreamBeginCaptureToGraph_ptsz, hStream, hGraph,
                                  dependencies, dependencyData, numDependencies, mode);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return end_capture<Legacy>(driver().cuStreamEndCapture, hStream, phGraph);
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
  return end_capture<PerThread>(driver().cuStreamEndCapture_ptsz, hStream, phGraph);
}

CUresult cuStreamDestroy(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy, hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return destroy_stream(driver().cuStreamDestroy_v2, hStream);
}
