/* SPDX-License-Identifier: Apache-2.0
 * dlsym and dlvsym as the program calls them. Cistern answers for the names in its hook table; for
 * everything else control jumps to the real function with the program's own return address on the
 * stack, because RTLD_NEXT and RTLD_DEFAULT mean "as seen from the caller".
 *
 * cistern_claim(handle, name, version or 0, return address) decides (routes.cc). It returns the
 * answer, 1 where the answer is a null pointer, or 0 where the real function shall answer.
 */
#if defined(__x86_64__)
        .text

        .macro lookup name, real
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        movq    (%rsp), %rcx            /* return address: who asks */
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx                    /* keeps the stack aligned, too */
        .cfi_adjust_cfa_offset 8
        .ifc \name, dlsym
        xorl    %edx, %edx              /* no version asked */
        .endif
        call    cistern_claim
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rax, %rax
        jnz     1f
        movq    \real(%rip), %rax
        jmp     *%rax
1:      xorl    %edx, %edx
        cmpq    $1, %rax                /* the answer is a null pointer */
        cmoveq  %rdx, %rax
        ret
        .cfi_endproc
        .size   \name, . - \name
        .endm

        lookup  dlsym, cistern_real_dlsym
        lookup  dlvsym, cistern_real_dlvsym
#endif
        .section .note.GNU-stack, "", @progbits
