/* SPDX-License-Identifier: Apache-2.0
 * dlsym and dlvsym for aarch64, see dlsym_x86_64.S. The tests assemble this file; it was never run.
 */
#if defined(__aarch64__)
        .text

        .macro lookup name, real
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        .cfi_startproc
        hint    #34                     /* bti c */
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        mov     x29, sp
        .ifc \name, dlsym
        mov     x2, #0                  /* no version asked */
        .endif
        mov     x3, x30                 /* return address: who asks */
        bl      cistern_claim
        mov     x9, x0
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        cbnz    x9, 1f
        adrp    x9, \real
        ldr     x9, [x9, #:lo12:\real]
        br      x9
1:      cmp     x9, #1                  /* the answer is a null pointer */
        csel    x0, xzr, x9, eq
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        lookup  dlsym, cistern_real_dlsym
        lookup  dlvsym, cistern_real_dlvsym
#endif
        .section .note.GNU-stack, "", %progbits
