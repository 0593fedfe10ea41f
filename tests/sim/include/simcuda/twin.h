// SPDX-License-Identifier: Apache-2.0
//
// Writing a kernel twin in C++: the parameter list of the body is the parameter list of the
// kernel, so sizes and copies follow from its type.
//
//   void axpy(const SimcudaLaunch&, float a, const float* x, float* y, int n) { ... }
//   void axpy_ranges(simcuda::Ranges& r, float, const float* x, float* y, int n) {
//     r.reads(x, n);
//     r.writes(y, n);
//   }
//   const SimcudaKernel kKernels[] = {simcuda::twin<axpy, axpy_ranges>("_Z4axpyfPKfPfi")};
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kernels.h"

namespace simcuda {

// What a twin's ranges function fills; counts are in elements.
class Ranges {
 public:
  Ranges(SimcudaRangeFn receiver, void* sink) : add_(receiver), sink_(sink) {}

  template <class T, class Count>
  void reads(const T* first, Count count) {
    add(first, static_cast<uint64_t>(count) * sizeof(T), SIMCUDA_READS);
  }
  template <class T, class Count>
  void writes(T* first, Count count) {
    add(first, static_cast<uint64_t>(count) * sizeof(T), SIMCUDA_WRITES);
  }
  // Atomic operations only: other launches may update the same words at the same time.
  template <class T, class Count>
  void updates(T* first, Count count) {
    add(first, static_cast<uint64_t>(count) * sizeof(T), SIMCUDA_UPDATES);
  }

 private:
  void add(const void* first, uint64_t bytes, int touch) {
    add_(sink_, {reinterpret_cast<uintptr_t>(first), bytes, touch});
  }

  SimcudaRangeFn add_;
  void* sink_;
};

namespace internal {

template <auto Body, auto Declare, class Signature>
struct TwinOf;

template <auto Body, auto Declare, class... Params>
struct TwinOf<Body, Declare, void (*)(const SimcudaLaunch&, Params...)> {
  static constexpr std::array<uint32_t, sizeof...(Params)> kSizes{sizeof(Params)...};

  template <size_t... I>
  static void run(const SimcudaLaunch& launch, std::index_sequence<I...>) {
    Body(launch, *static_cast<Params*>(launch.params[I])...);
  }
  template <size_t... I>
  static void declare(Ranges& ranges, const SimcudaLaunch& launch, std::index_sequence<I...>) {
    Declare(ranges, *static_cast<Params*>(launch.params[I])...);
  }
  template <auto DurationNs, size_t... I>
  static uint64_t time(const SimcudaLaunch& launch, std::index_sequence<I...>) {
    return DurationNs(*static_cast<Params*>(launch.params[I])...);
  }
  template <auto DurationNs>
  static uint64_t duration(const SimcudaLaunch* launch) {
    return time<DurationNs>(*launch, std::index_sequence_for<Params...>());
  }
  static void body(const SimcudaLaunch* launch) {
    run(*launch, std::index_sequence_for<Params...>());
  }
  static void ranges(const SimcudaLaunch* launch, SimcudaRangeFn add, void* sink) {
    Ranges list(add, sink);
    declare(list, *launch, std::index_sequence_for<Params...>());
  }
};

}  // namespace internal

// The table entry of a kernel whose mangled name is `name`.
template <auto Body, auto Declare>
constexpr SimcudaKernel twin(const char* name) {
  using Of = internal::TwinOf<Body, Declare, decltype(Body)>;
  return {
      name,   static_cast<uint32_t>(Of::kSizes.size()), Of::kSizes.data(), &Of::ranges, &Of::body,
      nullptr};
}

// One that takes the time which `DurationNs`, a function of its parameters, says.
template <auto Body, auto Declare, auto DurationNs>
constexpr SimcudaKernel timed_twin(const char* name) {
  SimcudaKernel kernel = twin<Body, Declare>(name);
  kernel.duration_ns =
      &internal::TwinOf<Body, Declare, decltype(Body)>::template duration<DurationNs>;
  return kernel;
}

}  // namespace simcuda
