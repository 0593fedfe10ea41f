#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A libcuda.so.1 that is a stub, as that of WSL2: each of its functions opens the driver proper and asks dlsym for the
function of its own name. A hook that it got for an answer would call the stub, which would ask again, for ever."""

import os
import platform
import shutil
import subprocess
import sys

import life

ASK = r"""
#include <dlfcn.h>
static const char* const names[] = {%s};
__attribute__((used, visibility("hidden"))) void* proper(int i) {
  return dlsym(dlopen("%s", RTLD_NOW | RTLD_LOCAL), names[i]);
}
__asm__(".text\n"
  "common: push %%rdi\n push %%rsi\n push %%rdx\n push %%rcx\n push %%r8\n push %%r9\n push %%rbp\n"
  "mov %%eax, %%edi\n call proper\n"
  "pop %%rbp\n pop %%r9\n pop %%r8\n pop %%rcx\n pop %%rdx\n pop %%rsi\n pop %%rdi\n jmp *%%rax\n");
"""
FORWARD = '__asm__(".globl {0}\\n.type {0}, @function\\n{0}: mov ${1}, %eax\\n jmp common\\n");\n'


class StubDriver(life.Life):
    def setUp(self):
        super().setUp()
        real = life.build_dir / "sim" / "libcuda.so.1"
        if life.sanitizer_runtimes(real):
            self.skipTest("a sanitizer's runtime is no driver's")
        proper = self.folder / "proper" / "libcuda.so.1.1"
        proper.parent.mkdir()
        shutil.copy(real.resolve(), proper)
        symbols = subprocess.run(("nm", "-D", "--defined-only", real), check=True, capture_output=True, text=True).stdout
        names = sorted({line.split()[2].partition("@")[0] for line in symbols.splitlines() if line.split()[1] == "T"})
        self.assertIn("cuInit", names)
        source = ASK % (",".join(f'"{name}"' for name in names), proper)
        source += "".join(FORWARD.format(name, i) for i, name in enumerate(names))
        self.stub = self.folder / "stub"
        self.stub.mkdir()
        subprocess.run(("cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", self.stub / "libcuda.so.1"),
                       input=source, text=True, check=True)

    def test_programs_are_pooled_on_it(self):
        path = f"{self.stub}:{life.build_dir / 'sim'}:{life.build_dir / 'programs'}"
        for program in (("driver_api_lazy",), ("driver_api_now",), ("driver_lookup_lazy", "dlsym"), ("driver_lookup_now", "resolver"),
                        ("vector_add_shared",), ("vector_add_static",)):
            with self.subTest(program):
                process = self.run_both(self.program(program[0]), *program[1:], LD_LIBRARY_PATH=path)
                reports, _ = self.left(process.folder)
                [device] = reports[process.pid]["devices"]
                self.assertGreater(device["hits"], 0)
                os.remove(process.folder / f"report.{process.pid}")


if __name__ == "__main__":
    if platform.machine() != "x86_64":
        print("skipped: the stub is written for x86-64")
        sys.exit(77)
    life.main()
