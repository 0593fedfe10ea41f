// SPDX-License-Identifier: Apache-2.0
// Two kernels of kernels.cuh for programs on the driver API, launched as one block of threads.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace random_work {

inline constexpr char kImage[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .entry _Z10fill_wordsPjmj(.param .u64 words, .param .u64 count, .param .u32 seed) {
  .reg .pred %p;
  .reg .u32 %lane, %width, %seed, %value;
  .reg .u64 %at, %i, %count, %step;
  ld.param.u64 %at, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  cvta.to.global.u64 %at, %at;
  mov.u32 %lane, %tid.x;
  mov.u32 %width, %ntid.x;
  cvt.u64.u32 %i, %lane;
  cvt.u64.u32 %step, %width;
  mad.lo.u64 %at, %i, 4, %at;
NEXT:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  cvt.u32.u64 %value, %i;
  add.u32 %value, %value, %seed;
  st.global.u32 [%at], %value;
  add.u64 %i, %i, %step;
  mad.lo.u64 %at, %step, 4, %at;
  bra NEXT;
DONE:
  ret;
}
.visible .entry _Z11check_wordsPKjmjPy(.param .u64 words, .param .u64 count, .param .u32 seed,
                                       .param .u64 verdict) {
  .reg .pred %p;
  .reg .u32 %lane, %width, %seed, %value, %held, %wrong;
  .reg .u64 %at, %i, %count, %step, %verdict, %more, %old;
  ld.param.u64 %at, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %verdict, [verdict];
  cvta.to.global.u64 %at, %at;
  cvta.to.global.u64 %verdict, %verdict;
  mov.u32 %lane, %tid.x;
  mov.u32 %width, %ntid.x;
  cvt.u64.u32 %i, %lane;
  cvt.u64.u32 %step, %width;
  mad.lo.u64 %at, %i, 4, %at;
NEXT:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  cvt.u32.u64 %value, %i;
  add.u32 %value, %value, %seed;
  ld.global.u32 %held, [%at];
  setp.ne.u32 %p, %held, %value;
  selp.u32 %wrong, 1, 0, %p;
  cvt.u64.u32 %more, %wrong;
  atom.global.add.u64 %old, [%verdict], %more;
  cvt.u64.u32 %more, %held;
  atom.global.add.u64 %old, [%verdict+8], %more;
  add.u64 %i, %i, %step;
  mad.lo.u64 %at, %step, 4, %at;
  bra NEXT;
DONE:
  ret;
}
)";

struct Kernels {
  CUfunction fill = nullptr, check = nullptr;

  // Into the current context.
  CUresult load() {
    CUmodule module = nullptr;
    CUresult code = cuModuleLoadData(&module, kImage);
    if (code == CUDA_SUCCESS) code = cuModuleGetFunction(&fill, module, "_Z10fill_wordsPjmj");
    if (code == CUDA_SUCCESS) {
      code = cuModuleGetFunction(&check, module, "_Z11check_wordsPKjmjPy");
    }
    return code;
  }
};

inline CUresult launch(CUfunction kernel, CUstream stream, void** parameters) {
  constexpr unsigned kThreads = 256;
  return cuLaunchKernel(kernel, 1, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr);
}

// words[i] = seed + i
inline CUresult fill_words(const Kernels& kernels, CUstream stream, CUdeviceptr words, size_t count,
                           uint32_t seed) {
  void* parameters[] = {&words, &count, &seed};
  return launch(kernels.fill, stream, parameters);
}

// verdict[0] += words that are not seed + i, verdict[1] += what they hold
inline CUresult check_words(const Kernels& kernels, CUstream stream, CUdeviceptr words,
                            size_t count, uint32_t seed, CUdeviceptr verdict) {
  void* parameters[] = {&words, &count, &seed, &verdict};
  return launch(kernels.check, stream, parameters);
}

}  // namespace random_work
