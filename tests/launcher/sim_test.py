#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern run --sim`: kernels are found without a variable, and one that is unknown is named."""

import sys
import unittest

import home

LOOK_UP = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
handle = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0) == 0
assert driver.cuCtxSetCurrent(handle) == 0
assert driver.cuModuleLoadData(ctypes.byref(handle), b"any image") == 0
for name in sys.argv[1:]:
    print(driver.cuModuleGetFunction(ctypes.byref(ctypes.c_void_p()), handle, name.encode()))
"""
KNOWN, UNKNOWN = "_Z11add_vectorsPKfS0_Pfi", "_Z7unknownv"
NOT_FOUND = "500"


class Settings(home.LauncherTest):
    """With a stand-in, as the other tests of the launcher."""

    def setUp(self):
        super().setUp()
        self.kernels = self.home / "sim" / "libtest-kernels.so"
        home.compile_library(self.kernels, home.EMPTY_LIBRARY)
        self.addCleanup(self.kernels.unlink)

    def shown(self, *options, **env):
        result = self.cistern("run", *options, "sh", "-c", "echo $SIMCUDA_KERNELS $SIMCUDA_MISSING_KERNELS", env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_the_kernels_of_the_test_programs_come_after_ones_own(self):
        self.assertEqual(self.shown("--sim"), f"{self.kernels} report\n")
        self.assertEqual(self.shown("--sim", SIMCUDA_KERNELS="/mine.so"), f"/mine.so:{self.kernels} report\n")
        both = f"{self.kernels}:/mine.so"
        self.assertEqual(self.shown("--sim", SIMCUDA_KERNELS=both), f"{both} report\n")

    def test_what_is_said_is_ones_own_choice(self):
        self.assertEqual(self.shown("--sim", SIMCUDA_MISSING_KERNELS="off"), f"{self.kernels} off\n")

    def test_without_the_simulator_nothing_is_set(self):
        self.assertEqual(self.shown(), "\n")


@unittest.skipIf("-fsanitize" in (home.built() / "CMakeCache.txt").read_text(encoding="utf-8"),
                 "a sanitizer's runtime would have to be preloaded first")
class Kernels(home.LauncherTest):
    """On the simulated CUDA of the build."""

    def looked_up(self, *names, **env):
        return self.cistern("run", "--sim", sys.executable, "-c", LOOK_UP, *names, home=home.built(), env=env)

    def test_a_kernel_of_the_test_programs_is_found(self):
        result = self.looked_up(KNOWN)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "0\n", ""))

    def test_an_unknown_one_is_named_once_with_the_variable_to_set(self):
        result = self.looked_up(UNKNOWN, KNOWN, UNKNOWN, "other", UNKNOWN)
        self.assertEqual((result.returncode, result.stdout.split()), (0, [NOT_FOUND, "0", *[NOT_FOUND] * 3]))
        first, second = result.stderr.splitlines()
        self.assertRegex(first, f'^simcuda: error: .*; value "{UNKNOWN}"; .* SIMCUDA_KERNELS, now "/.*"; try: ')
        self.assertIn('; value "other"; ', second)

    def test_nothing_is_said_where_that_is_asked_for(self):
        result = self.looked_up(UNKNOWN, SIMCUDA_MISSING_KERNELS="off")
        self.assertEqual((result.stdout, result.stderr), (f"{NOT_FOUND}\n", ""))


if __name__ == "__main__":
    home.main()
