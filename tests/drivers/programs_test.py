#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of every day, and those of tests/preload that look the driver up, on NVIDIA's drivers without a GPU: they
start, answer and end as without Cistern, preloaded by hand and by `cistern run`; and what `cistern doctor` says."""


import stage

import expectations

LAUNCHER = stage.ROOT / "scripts" / "cistern"
# The runs of these expectations. Not among them: programs that name functions which the oldest driver lacks, since the
# loader starts those with Cistern only (shim/LIMITS.md).
TESTS = ("life/everyday", "lookup/ctypes_alloc", "lookup/driver_api", "lookup/driver_copies", "lookup/driver_lookup",
         "lookup/driver_names", "lookup/lookalike", "lookup/lookups", "lookup/next_chain", "lookup/no_driver",
         "lookup/own_wrapper", "pooling/error_codes", "pooling/memory_kinds", "pooling/vector_add", "life/fork_cuda",
         "order/threads")
# Linked with the simulated runtime, for good; those with the shared one get the toolkit's here.
SIMULATED = "_static"


class Programs(stage.DriverTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = stage.build_dir / "programs"
        words = {"programs": str(cls.programs), "source": str(stage.HERE.parent / "preload" / "programs"),
                 "data": str(stage.HERE.parent / "data"), "seed": "1"}
        reader = expectations.Reader(words)
        cls.commands = [command for name in TESTS for test in reader.tests(name).values() for command in test.commands
                        if test.toolkit_runtime or not command[0].endswith(SIMULATED)]

    def test_they_start_answer_and_end_as_without(self):
        toolkit = stage.runtimes[0].libraries
        launched = (LAUNCHER, "--home", stage.build_dir, "run", "--")
        for driver, folder in stage.drivers.items():
            for command in self.commands:
                with self.subTest(driver, command=command):
                    libraries = [folder, toolkit, self.programs]
                    bare = self.run_one(command, libraries)
                    self.assertIn(bare[0], (0, 1), bare)
                    for settings in stage.SETTINGS[::2]:
                        self.assert_alike(bare, self.run_one(command, libraries, [self.object], **settings), settings)
                    self.assert_alike(bare, self.run_one((*launched, *command), libraries), "cistern run")

    def test_doctor_names_the_driver_and_the_missing_gpu(self):
        for driver, folder in stage.drivers.items():
            with self.subTest(driver):
                status, out, err, _ = self.run_one((LAUNCHER, "--home", stage.build_dir, "doctor"), [folder])
                self.assertEqual((status, err), (1, ""))
                self.assertIn(f"{folder / 'libcuda.so.1'}, CUDA 1", out)
                self.assertIn("none: cuInit returned error 100", out)
                self.assertIn("verdict     no GPU", out)


if __name__ == "__main__":
    stage.main()
