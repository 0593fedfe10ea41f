/* SPDX-License-Identifier: Apache-2.0
 * The trampolines for aarch64, see trampolines_x86_64.S. Kept are x0 to x8, q0 to q7, and the
 * stack; x16 and x17 are free at every call. The tests assemble this file; it was never run.
 */
#if defined(__aarch64__)
        .text

        .globl  cistern_trampolines
        .hidden cistern_trampolines
        .type   cistern_trampolines, %function
        .p2align 5
cistern_trampolines:
        .cfi_startproc
        .set    slot, 0
        .rept   256
        .p2align 5
        hint    #34                     /* bti c: also for br x16 */
        adrp    x16, cistern_trampoline_targets + 8 * slot
        ldr     x16, [x16, #:lo12:cistern_trampoline_targets + 8 * slot]
        br      x16
        hint    #34
        mov     w17, #slot
        b       first_call
        nop
        .set    slot, slot + 1
        .endr
        .cfi_endproc
        .size   cistern_trampolines, . - cistern_trampolines

        .type   first_call, %function
        .p2align 4
first_call:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset x29, -224
        .cfi_offset x30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      cistern_first_call
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldp     x2, x3, [sp, #32]
        ldp     x4, x5, [sp, #48]
        ldp     x6, x7, [sp, #64]
        ldr     x8, [sp, #80]
        ldp     q0, q1, [sp, #96]
        ldp     q2, q3, [sp, #128]
        ldp     q4, q5, [sp, #160]
        ldp     q6, q7, [sp, #192]
        ldp     x29, x30, [sp], #224
        .cfi_restore x29
        .cfi_restore x30
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   first_call, . - first_call
#endif
        .section .note.GNU-stack, "", %progbits
