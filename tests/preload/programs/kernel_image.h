// SPDX-License-Identifier: Apache-2.0
// Kernels of kernels.cuh for programs on the driver API: the image, and how one is launched. The
// threads of the one block share the words; hold_words wants a single one.
#pragma once

#include <cuda.h>

namespace kernel_image {

inline constexpr char kImage[] = R"(
.version 6.4
.target sm_75
.address_size 64
.func spin(.reg .u32 %delay_us) {
  .reg .pred %p;
  .reg .u64 %from, %now, %ticks;
  mul.wide.u32 %ticks, %delay_us, 1500;
  mov.u64 %from, %clock64;
SPIN:
  mov.u64 %now, %clock64;
  sub.u64 %now, %now, %from;
  setp.lt.u64 %p, %now, %ticks;
  @%p bra SPIN;
  ret;
}
.func (.reg .u64 %first) lane() {
  .reg .u32 %lane;
  mov.u32 %lane, %tid.x;
  cvt.u64.u32 %first, %lane;
  ret;
}
.func (.reg .u64 %next) next(.reg .u64 %i) {
  .reg .u32 %width;
  mov.u32 %width, %ntid.x;
  cvt.u64.u32 %next, %width;
  add.u64 %next, %next, %i;
  ret;
}
.func fill(.reg .u64 %words, .reg .u64 %count, .reg .u32 %seed) {
  .reg .pred %p;
  .reg .u32 %value;
  .reg .u64 %at, %i;
  call (%i), lane;
NEXT:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  mad.lo.u64 %at, %i, 4, %words;
  cvt.u32.u64 %value, %i;
  add.u32 %value, %value, %seed;
  st.u32 [%at], %value;
  call (%i), next, (%i);
  bra NEXT;
DONE:
  ret;
}
.visible .entry _Z10fill_wordsPjmj(.param .u64 words, .param .u64 count, .param .u32 seed) {
  .reg .u32 %seed;
  .reg .u64 %words, %count;
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  call fill, (%words, %count, %seed);
  ret;
}
.visible .entry _Z15slow_fill_wordsPjmjj(.param .u64 words, .param .u64 count, .param .u32 seed,
                                         .param .u32 delay_us) {
  .reg .u32 %seed, %delay;
  .reg .u64 %words, %count;
  ld.param.u32 %delay, [delay_us];
  call spin, (%delay);
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  call fill, (%words, %count, %seed);
  ret;
}
.visible .entry _Z10hold_wordsPjmjPVKj(.param .u64 words, .param .u64 count, .param .u32 seed,
                                       .param .u64 go) {
  .reg .pred %p;
  .reg .u32 %seed, %word;
  .reg .u64 %words, %count, %go;
  ld.param.u64 %go, [go];
  cvta.to.global.u64 %go, %go;
WAIT:
  ld.volatile.global.u32 %word, [%go];
  setp.eq.u32 %p, %word, 0;
  @%p bra WAIT;
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  call fill, (%words, %count, %seed);
  ret;
}
.visible .entry _Z14slow_sum_wordsPKjmPyj(.param .u64 words, .param .u64 count, .param .u64 total,
                                          .param .u32 delay_us) {
  .reg .pred %p;
  .reg .u32 %delay, %word;
  .reg .u64 %words, %count, %total, %at, %i, %more, %old;
  ld.param.u32 %delay, [delay_us];
  call spin, (%delay);
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u64 %total, [total];
  cvta.to.global.u64 %total, %total;
  call (%i), lane;
NEXT:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  mad.lo.u64 %at, %i, 4, %words;
  ld.u32 %word, [%at];
  cvt.u64.u32 %more, %word;
  atom.global.add.u64 %old, [%total], %more;
  call (%i), next, (%i);
  bra NEXT;
DONE:
  ret;
}
.visible .entry _Z11check_wordsPKjmjPy(.param .u64 words, .param .u64 count, .param .u32 seed,
                                       .param .u64 verdict) {
  .reg .pred %p;
  .reg .u32 %seed, %value, %held, %wrong;
  .reg .u64 %words, %count, %verdict, %at, %i, %more, %old;
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %verdict, [verdict];
  cvta.to.global.u64 %verdict, %verdict;
  call (%i), lane;
NEXT:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  mad.lo.u64 %at, %i, 4, %words;
  cvt.u32.u64 %value, %i;
  add.u32 %value, %value, %seed;
  ld.u32 %held, [%at];
  setp.ne.u32 %p, %held, %value;
  selp.u32 %wrong, 1, 0, %p;
  cvt.u64.u32 %more, %wrong;
  atom.global.add.u64 %old, [%verdict], %more;
  cvt.u64.u32 %more, %held;
  atom.global.add.u64 %old, [%verdict+8], %more;
  call (%i), next, (%i);
  bra NEXT;
DONE:
  ret;
}
)";

inline CUresult launch(CUfunction kernel, CUstream stream, void** parameters, unsigned threads) {
  return cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace kernel_image
