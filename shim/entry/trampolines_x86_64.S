/* SPDX-License-Identifier: Apache-2.0
 * The code that stands for driver functions that Cistern does not know (unknown.h): kTrampolines of
 * 32 bytes. The first half jumps where cistern_trampoline_targets says: to the second half until
 * the first call, then to the driver's function.
 *
 * Nothing is known of the function's parameters, so all that can hold one is kept: the six integer
 * registers, xmm0 to xmm7, rax (how many of those a variadic function gets), r10 (a static chain),
 * and the stack, on which only the return address is left. r11 is free at every call. The upper
 * halves of ymm and zmm registers are not kept: only vectors of 32 bytes and more are passed in
 * them, and a C interface to a driver has none; floats and doubles lie in the lower ones.
 *
 * Control comes by an indirect jump or call, and goes on by a jump: every entry has its endbr64,
 * the shadow stack sees one call, and the frame of the caller is found from any instruction.
 */
#if defined(__x86_64__)
        .text

        .globl  cistern_trampolines
        .hidden cistern_trampolines
        .type   cistern_trampolines, @function
        .p2align 5
cistern_trampolines:
        .cfi_startproc
        .set    slot, 0
        .rept   256
        .p2align 5
        endbr64
        jmp     *cistern_trampoline_targets + 8 * slot(%rip)
        .p2align 4
        endbr64
        movl    $slot, %r11d
        jmp     first_call
        .set    slot, slot + 1
        .endr
        .cfi_endproc
        .size   cistern_trampolines, . - cistern_trampolines

        .type   first_call, @function
        .p2align 4
first_call:
        .cfi_startproc
        subq    $200, %rsp              /* now the stack is aligned to 16 */
        .cfi_adjust_cfa_offset 200
        movaps  %xmm0, (%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movq    %rdi, 128(%rsp)
        movq    %rsi, 136(%rsp)
        movq    %rdx, 144(%rsp)
        movq    %rcx, 152(%rsp)
        movq    %r8, 160(%rsp)
        movq    %r9, 168(%rsp)
        movq    %rax, 176(%rsp)
        movq    %r10, 184(%rsp)
        movl    %r11d, %edi
        call    cistern_first_call
        movq    %rax, %r11
        movaps  (%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        movq    128(%rsp), %rdi
        movq    136(%rsp), %rsi
        movq    144(%rsp), %rdx
        movq    152(%rsp), %rcx
        movq    160(%rsp), %r8
        movq    168(%rsp), %r9
        movq    176(%rsp), %rax
        movq    184(%rsp), %r10
        addq    $200, %rsp
        .cfi_adjust_cfa_offset -200
        jmp     *%r11
        .cfi_endproc
        .size   first_call, . - first_call
#endif
        .section .note.GNU-stack, "", @progbits
