// SPDX-License-Identifier: Apache-2.0
//
// What the exported functions share. Each is one `call(...)`: the work, then its arguments as the
// trace shows them. Functions that exist for both default streams are written once, as a pair.
#pragma once

#include "base/cuda.h"
#include "base/gate.h"
#include "exec/context.h"
#include "exec/current.h"
#include "exec/stream.h"

namespace simcuda {

// Runs work(Context&) in the calling thread's context.
template <class Work>
CUresult in_context(Work&& work) {
  CUresult code = CUDA_SUCCESS;
  Context* context = usable_context(&code);
  return context == nullptr ? code : work(*context);
}

// Runs work(StreamRef) on the stream a handle means. A created stream brings its own context.
template <class Work>
CUresult on_stream(CUstream handle, DefaultStream kind, Work&& work) {
  const bool is_default =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  CUresult code = CUDA_SUCCESS;
  if (is_default && usable_context(&code) == nullptr) return code;
  const StreamRef stream = resolve_stream(handle, kind);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!stream->context.alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return work(stream);
}

}  // namespace simcuda

// Defines `symbol` and `symbol##suffix`: one body, which knows its call as kCall and its default
// stream as kDefault.
#define SIM_PAIR(symbol, suffix, params, ...)                                      \
  CUresult symbol params {                                                         \
    constexpr Call kCall = Call::symbol;                                           \
    [[maybe_unused]] constexpr DefaultStream kDefault = DefaultStream::kLegacy;    \
    __VA_ARGS__                                                                    \
  }                                                                                \
  CUresult symbol##suffix params {                                                 \
    constexpr Call kCall = Call::symbol##suffix;                                   \
    [[maybe_unused]] constexpr DefaultStream kDefault = DefaultStream::kPerThread; \
    __VA_ARGS__                                                                    \
  }
