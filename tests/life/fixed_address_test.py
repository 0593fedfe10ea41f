#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program at a fixed address that takes the address of a driver function which Cistern does not know: the driver serves
it, as it serves every program that is linked with such a function."""

import subprocess

import life

# Such a function's symbol is undefined and has a value: the address that the linker gave it in the program.
PROGRAM = """
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(unsigned long long*, unsigned long);
int cuMemFree_v2(unsigned long long);
int cuUnknownCopyAsync(void);
int (*volatile unknown)(void);
int main(void) {
  void* context = 0;
  unsigned long long block = 0;
  if (TAKEN) unknown = cuUnknownCopyAsync;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
  return cuMemAlloc_v2(&block, 1000) || cuMemFree_v2(block);
}
"""
# What the program is linked with. The linker refuses to give an address to the simulator's functions, which are protected.
DRIVER = """
void cuInit(void) {}
void cuDevicePrimaryCtxRetain(void) {}
void cuCtxSetCurrent(void) {}
void cuMemAlloc_v2(void) {}
void cuMemFree_v2(void) {}
void cuUnknownCopyAsync(void) {}
"""


class FixedAddress(life.Life):
    def setUp(self):
        super().setUp()
        if life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"):
            self.skipTest("a sanitizer wants programs that it was built into")

    def linked_with_unknown(self, taken):
        driver, program = self.folder / "libcuda.so.1", self.folder / f"program{taken}"
        for source, *words in ((DRIVER, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", driver),
                               (PROGRAM, "-fno-pie", "-no-pie", f"-DTAKEN={taken}", "-o", program, "-x", "none", driver)):
            subprocess.run(("cc", "-O1", "-w", "-x", "c", "-", *words), input=source, text=True, check=True)
        process = self.start((program,), True)
        self.assertEqual(self.finish(process)[:2], (0, ""))
        reports, _ = self.left(process.folder)
        return reports[process.pid]["unknown_functions"]["linked"]

    def test_an_address_that_is_taken_is_a_link(self):
        self.assertEqual(self.linked_with_unknown(taken=1), 1)

    def test_a_program_that_takes_none_is_pooled(self):
        self.assertEqual(self.linked_with_unknown(taken=0), 0)


if __name__ == "__main__":
    life.main()
