#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The end of a report: the framework that pools the program's memory itself, and hints, in both forms; and
that nothing of it is said where nobody asked for a report."""

import os
import shutil

import life

TORCH = "PYTORCH_NO_CUDA_MEMORY_CACHING"
SETTINGS = {"CISTERN_LOG": "warn", "CISTERN_FREE_SYNC": "auto"}  # set: no hint that depends on how long frees take


class Advice(life.Life):
    beside = ("libtestclock.so",)  # which the program stops: no hint that depends on when the background thread comes

    def library(self, name):
        """A library of this name, which is loaded and does nothing."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(life.build_dir / "programs" / "libsite_one.so", path)
        return str(path)

    def process(self, *words, **more):
        process = self.start((self.program("changing_sizes_lazy"), *words), True, **SETTINGS | more)
        self.assertEqual(self.finish(process), (0, "failures: 0\n", ""))
        return process

    def report(self, *words, **more):
        return self.left(self.process(*words, **more).folder)[0].popitem()[1]

    def text(self, *words, **more):
        process = self.process(*words, CISTERN_REPORT="text", **more)
        return next(process.folder.glob("report.*")).read_text()

    def test_a_framework_is_named_with_the_setting_that_helps(self):
        for name, framework, setting in (
            ("libc10_cuda.so", "PyTorch", f"{TORCH}=1"),
            ("xla_cuda_plugin.so", "JAX", "XLA_PYTHON_CLIENT_ALLOCATOR=platform"),
            ("libtensorflow_framework.so.2", "TensorFlow", "TF_GPU_ALLOCATOR=cuda_malloc"),
            ("cupy_backends/cuda/api.so", "CuPy", "cupy.cuda.set_allocator(None)"),
            ("librmm.so", "RMM", "rmm.reinitialize(pool_allocator=False)"),
        ):
            library = self.library(name)
            report = self.report("loads", library)
            self.assertEqual(report["frameworks"], [{"name": framework, "setting": setting}])
            self.assertEqual(report["hints"], [])
            line = self.text("loads", library).splitlines()[-1]
            self.assertRegex(line, rf"^cistern: {framework} +pools device memory itself.*; ")
            self.assertIn(f"; {setting} lets Cistern do it", line)

    def test_none_is_named_whose_pool_is_off_or_that_cistern_serves(self):
        torch, tensorflow = self.library("libc10_cuda.so"), self.library("libtensorflow_framework.so.2")
        for words, settings in (
            (("loads", torch), {TORCH: "1"}),
            (("loads", torch), {TORCH: "0"}),  # PyTorch looks whether it is set
            (("loads", tensorflow), {"TF_GPU_ALLOCATOR": "cuda_malloc"}),
            (("reuses", torch), {}),
            (("loads", self.library("libmine.so")), {}),
        ):
            self.assertEqual(self.report(*words, **settings)["frameworks"], [], words)
        self.assertEqual(len(self.report("loads", tensorflow, TF_GPU_ALLOCATOR="memory_guard")["frameworks"]), 1)

    def test_a_pool_of_the_programs_own_needs_no_other_policy(self):
        report = self.report("mixed", self.library("libc10_cuda.so"))
        self.assertEqual((len(report["frameworks"]), report["hints"]), (1, []))

    def test_hints_are_the_last_lines(self):
        lines = self.text("mixed").splitlines()
        self.assertRegex(lines[-1], "^cistern: hint +[0-9]+ of 5000 allocations on device 0 went to the driver, in many")
        self.assertIn("FLAGS_allocator_strategy=auto_growth with FLAGS_auto_growth_chunk_size_in_mb=64", lines[-1])
        self.assertFalse([line for line in lines[:-1] if "hint" in line])

    def test_without_a_report_nothing_is_said(self):
        words = (self.program("changing_sizes_lazy"), "loads", self.library("libc10_cuda.so"))
        env = {k: v for k, v in self.environment(True).items() if not k.startswith(life.FOREIGN[0])}
        process = self.start(words, False, LD_PRELOAD=env["LD_PRELOAD"])
        self.assertEqual(self.finish(process), (0, "failures: 0\n", ""))
        self.assertEqual(os.listdir(process.folder), [])


if __name__ == "__main__":
    life.main()
