#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The driver alone: every function it has, looked up in every way, and what each hooked one answers without a GPU."""

import os

import stage

LEAST_HOOKS = 200  # that are answered: of the oldest driver's functions, too


class DriverApi(stage.DriverTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        stage.compile_all([
            (f"-I{stage.ROOT}", f"-I{stage.ROOT / 'shim' / 'toolkit'}", f"-I{os.environ['CUDA_INCLUDE']}",
             stage.HERE / "programs" / f"{name}.cc", "-o", cls.shared / name, "-ldl")
            for name in ("driver_lookups", "driver_calls")])

    def test_every_lookup_of_a_hook_lands_on_it(self):
        for name, folder in stage.drivers.items():
            with self.subTest(name):
                library = stage.exports(folder / "libcuda.so.1")
                symbols = sorted(library.keys() | self.hooks.keys() | {"cuNoSuchFunction"})
                names = self.shared / "names"
                asked = [f"symbol {s}" for s in symbols] + [f"name {s}" for s in stage.shared_names(symbols)]
                names.write_text("\n".join(asked))
                command = (self.shared / "driver_lookups", names)
                bare = self.run_one(command, [folder])
                pooled = self.run_one(command, [folder], [self.object])
                self.assertEqual((pooled[0], *pooled[2:]), (0, "", {}))
                lines = [result[1].splitlines() for result in (bare, pooled)]
                self.assert_rerouted(*lines, library, LEAST_HOOKS, name)
                asked = [line.split(" ") for line in lines[0]]
                for route in ("dlsym", "dlsym-default", "dlsym-next"):
                    found = {words[1] for words in asked if words[0] == route and words[-1] != "-"}
                    self.assertEqual(found, set(library), f"{name}: {route} without")

    def test_every_hook_answers_as_the_driver(self):
        for name, folder in stage.drivers.items():
            bare = self.run_one([self.shared / "driver_calls"], [folder])
            self.assertRegex(bare[1], r"(?m)^cuInit: 100$", f"{name}: a machine with a GPU?")
            for settings in stage.SETTINGS:
                with self.subTest(name, settings=settings):
                    pooled = self.run_one([self.shared / "driver_calls"], [folder], [self.object], **settings)
                    self.assert_alike(bare, pooled, name)


if __name__ == "__main__":
    stage.main()
