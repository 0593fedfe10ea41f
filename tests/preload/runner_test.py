#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run-pair runs all tests that it is given, and fails if one of them failed."""

import importlib.machinery
import importlib.util
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import pairs

RUN_PAIR = str(pathlib.Path(__file__).resolve().parent / "run-pair")
SOME = ("contexts/many_contexts.counted", "pooling/vector_add")
HOST = "host/host_memlock"


def load(path):
    loader = importlib.machinery.SourceFileLoader("run_pair", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_pair", loader))
    loader.exec_module(module)
    return module


class Given(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="runner-")
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "sim").mkdir()
        for product in ("sim/libcuda.so.1", "libcistern-device.so"):
            (self.build / product).touch()
        (self.build / "libcistern.so").symlink_to("libcistern-device.so")  # as in a build without the host's half
        environment = {name: value for name, value in os.environ.items()
                       if name != "BUILD_DIR" and not name.startswith("TEST_")}
        for patch in (unittest.mock.patch.dict(os.environ, environment, clear=True), unittest.mock.patch("builtins.print")):
            patch.start()
            self.addCleanup(patch.stop)
        self.run_pair = load(RUN_PAIR)

    def status(self, names, failing=()):
        """The exit status, and the tests that were run."""
        ran = []

        def run(_, __, expected):
            ran.append(expected.name)
            return expected.name not in failing
        words = [RUN_PAIR, "--build", str(self.build), *(word for name in names for word in ("--program", name))]
        with unittest.mock.patch.object(pairs, "run_and_tell", run), unittest.mock.patch("sys.argv", words):
            return self.run_pair.main(), list(dict.fromkeys(ran))

    def test_all_run_and_any_failure_counts(self):
        self.assertEqual(self.status(SOME), (0, [*SOME]))
        for failing in SOME:
            self.assertEqual(self.status(SOME, [failing]), (1, [*SOME]), failing)

    def test_it_is_skipped_only_if_all_of_it_is(self):
        self.assertEqual(self.status([HOST]), (77, []))
        self.assertEqual(self.status([HOST, SOME[1]]), (0, [SOME[1]]))
        self.assertEqual(self.status([HOST, SOME[1]], [SOME[1]]), (1, [SOME[1]]))


if __name__ == "__main__":
    unittest.main()
