// SPDX-License-Identifier: Apache-2.0
// The contexts that take part in a piece of work, as the arguments of the call name them: the one
// that does the work, by the stream or as the current one; the owners of the addresses; contexts
// named outright; those of a graph. Each argument is understood by its type, so that one function
// serves every row of submissions.def. Only used with several contexts. Any thread.
#pragma once

#include <cstddef>
#include <type_traits>

#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

class Participants {
 public:
  // `Kind` is what the call means by stream 0 (ask.h). Without `kTouches` only the context that
  // does the work is looked for.
  template <typename Kind, bool kTouches, typename... Arguments>
  static Participants of(const Arguments&... arguments) {
    Participants found;
    (found.count(arguments), ...);
    (found.template note<Kind, kTouches>(arguments), ...);
    if (!found.has_stream_) found.worker(/*stream=*/nullptr);
    if (!found.has_stream_) found.stream_ = Kind::name(nullptr);
    return found;
  }

  // The stream of the call by the name that functions without a suffix know; only if has_stream().
  CUstream stream() const { return stream_; }
  bool has_stream() const { return has_stream_; }
  const ContextSet& contexts() const { return contexts_; }

  // Nothing says in which context parts of the work run (a graph does, or the arguments), so each
  // context may do work that touches memory of each other.
  void tie() const;

 private:
  // Arrays come with the number of their elements, in the first argument of a type for that; flags
  // are of another type. Without a number there is one element.
  void count(size_t n) { set_count(n); }
  void count(unsigned n) { set_count(n); }
  template <typename Other>
  void count(const Other&) {}
  void set_count(size_t n) {
    if (!counted_) count_ = n;
    counted_ = true;
  }

  template <typename Kind, bool kTouches, typename Argument>
  void note(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, CUstream>) {
      worker_of_stream(Kind::name(argument));
    } else if constexpr (std::is_same_v<Argument, CUstream*>) {
      if (argument != nullptr) worker_of_stream(Kind::name(*argument));
    } else if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      worker_of_stream(Kind::name(argument->hStream));
    } else if constexpr (kTouches) {
      add(argument);
    }
  }

  void worker(CUstream stream);
  void worker_of_stream(CUstream stream);
  void add_context(CUcontext handle);

  void add(CUdeviceptr address);
  void add(const void* address) { add(reinterpret_cast<CUdeviceptr>(address)); }
  void add(void* address) { add(static_cast<const void*>(address)); }
  void add(CUcontext context) { add_context(context); }
  void add(CUgraphExec exec);
  void add(const CUdeviceptr* addresses);
  void add(CUdeviceptr* addresses) { add(static_cast<const CUdeviceptr*>(addresses)); }
  void add(const CUDA_MEMCPY2D* copy);
  void add(const CUDA_MEMCPY3D* copy);
  void add(const CUDA_MEMCPY3D_PEER* copy);
  void add(CUDA_FABRIC_COPY_BATCH_OP* copies);
  void add(CUDA_MEMCPY3D_BATCH_OP* copies);
  void add(CUmemDecompressParams* parameters);
  void add(CUstreamBatchMemOpParams* operations);
  // A type in which no address or context can be. Arrays are never pooled.
  template <typename Other>
  void add(const Other&) {
    static_assert(std::is_integral_v<Other> || std::is_same_v<Other, CUarray> ||
                      std::is_same_v<Other, size_t*> || std::is_same_v<Other, CUmemcpyAttributes*>,
                  "say what is in an argument of this type");
  }
  template <typename Copy>
  void add_box(const Copy& copy);

  ContextSet contexts_;
  CUstream stream_ = nullptr;
  bool has_stream_ = false;
  bool counted_ = false;
  size_t count_ = 1;
};

}  // namespace cistern::shim
