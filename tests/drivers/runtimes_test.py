#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's runtimes on NVIDIA's drivers, static and shared: what their calls answer without a GPU, whichever is the
first, and what they look up in the driver while they find that out. TEST_SEEDS=1/3 in the environment: every third of
the calls is the first one."""

import os

import stage  # first: it says where the others are
import expectations

LEAST_HOOKS = 100  # that a runtime finds
SOURCES = stage.HERE / "programs"


class Runtimes(stage.DriverTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.watcher = cls.shared / "libwatch_lookups.so"
        commands = [("-shared", "-fPIC", f"-I{os.environ['CUDA_INCLUDE']}", SOURCES / "watch_lookups.cc",
                     "-o", cls.watcher)]
        cls.programs = []
        for number, runtime in enumerate(stage.runtimes):
            kinds = {"shared": stage.only(runtime.libraries, "libcudart.so.*"), "static": runtime.static}
            kinds = {kind: library for kind, library in kinds.items() if library is not None}
            for turn, (kind, library) in enumerate(kinds.items()):
                program = cls.shared / f"calls_{number}_{kind}"
                part = slice(turn, None, len(kinds))  # of the first calls: both kinds are made of one source
                cls.programs.append((f"{runtime.name} {kind}", program, runtime.libraries, part))
                commands.append((f"-isystem{runtime.include}", SOURCES / "runtime_calls.cc", "-o", program, library,
                                 "-ldl", "-lrt", "-lpthread"))
        stage.compile_all(commands)
        cls.names = cls.shared / "names"
        cls.names.write_text("\n".join(stage.shared_names(cls.hooks)))

    def pairs(self):
        for driver, folder in stage.drivers.items():
            for name, program, libraries, part in self.programs:
                yield f"{driver}, {name}", program, [folder, libraries], part

    def test_every_call_answers_as_without(self):
        for what, program, libraries, part in self.pairs():
            firsts = range(int(self.run_one([program], libraries)[1]))[part]
            self.assertGreater(len(firsts), 10)
            firsts = expectations.part_of(firsts, os.environ.get("TEST_SEEDS"))
            for first in firsts:
                command = (program, first, self.names if first == firsts[0] else "/dev/null")
                bare = self.run_one(command, libraries)
                self.assertEqual(bare[0], 0, bare)
                self.assertRegex(bare[1], r"cudaMalloc: cudaError(NoDevice|InsufficientDriver),", what)
                # One of them under all settings, and with the entry points, is enough.
                turn = stage.SETTINGS[first % len(stage.SETTINGS)]
                for settings in stage.SETTINGS if first == firsts[0] else (turn,):
                    self.assert_alike(bare, self.run_one(command, libraries, [self.object], **settings),
                                      f"{what}, call {first} first, {settings}")

    def test_every_lookup_of_the_runtime_gets_the_hook(self):
        for what, program, libraries, _ in self.pairs():
            looked_up = []
            for preload in ([self.watcher], [self.watcher, self.object]):
                result = self.run_one((program, 0, self.names), libraries, preload, WATCH_FILE="watched")
                self.assertEqual((result[0], result[2]), (0, ""), what)
                looked_up.append(result[3]["watched"].decode().splitlines())
            self.assert_rerouted(*looked_up, stage.exports(libraries[0] / "libcuda.so.1"), LEAST_HOOKS, what)
            asked = {tuple(line.split(" ")[1:4]) for line in looked_up[0]}
            self.assertGreater(len(asked), 2 * LEAST_HOOKS, what)


if __name__ == "__main__":
    stage.main()
