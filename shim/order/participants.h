// SPDX-License-Identifier: Apache-2.0
// The contexts that take part in submitted work, found from the arguments of the call: the context
// of the stream, else the current one; the owners of the addresses; contexts passed as arguments;
// those of a graph. The type of an argument decides how it is read, so one function serves every
// row of submissions.def. Only used with several contexts. Any thread.
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

  // The stream of the call, as a handle for functions without a suffix (ask.h). Valid only if
  // has_stream().
  CUstream stream() const { return stream_; }
  bool has_stream() const { return has_stream_; }
  const ContextSet& contexts() const { return contexts_; }

  // Ties every one of these contexts to every other: only the graph or the arguments decide which
  // context does which part of the work.
  void tie() const;

 private:
  // The number of an array's elements is the first argument of type size_t or unsigned. Without
  // such an argument there is one element.
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
  // For types that hold no address of pooled memory and no context. CUDA arrays are never pooled.
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
