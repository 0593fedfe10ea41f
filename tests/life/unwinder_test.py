#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libunwind is loaded where a setting needs call stacks, and nowhere else; without it that is said once, and the
program runs as ever."""

import shutil
import subprocess

import life

SKIP = {"CISTERN_SKIP_OPT_SET": "fc_layer"}
ALLOCATES = "from_sites_lazy"


class Unwinder(life.Life):
    def log_of(self, process):
        return "".join(path.read_text() for path in process.folder.glob("log.*"))

    def opened(self, **more):
        """The files that a run opens, says ld.so."""
        env = self.environment(True, LD_DEBUG="files", **more)
        done = subprocess.run((self.program(ALLOCATES), "named"), env=env, cwd=self.folder,
                              capture_output=True, text=True, check=True)
        return done.stderr

    def test_it_is_loaded_only_where_a_setting_needs_it(self):
        self.assertNotIn("libunwind", self.opened())
        self.assertIn("libunwind.so", self.opened(**SKIP))

    def test_of_too_many_entries_one_warning_names_the_first(self):
        globs = ",".join(f"g{i}" for i in range(100))
        process = self.run_both(self.program(ALLOCATES), "named", CISTERN_SKIP_OPT_SET=globs, CISTERN_SKIP_GRADS="true")
        warnings = [line for line in self.log_of(process).splitlines() if "warn" in line]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("101 entries in all settings; allowed: 63; CISTERN_SKIP_OPT_SET 'g63', 'g64', 'g65' "
                      "and 35 more do nothing;", warnings[0])

    def test_without_it_one_warning_says_so(self):
        missing = self.folder / "missing"
        missing.mkdir()
        for name in ("libunwind.so.8", "libunwind.so"):
            (missing / name).write_bytes(b"no library")
        path = self.environment(True)["LD_LIBRARY_PATH"]
        process = self.run_both(self.program(ALLOCATES), "named", LD_LIBRARY_PATH=f"{missing}:{path}", **SKIP)
        self.assertEqual(process.returncode, 0)
        log = self.log_of(process)
        self.assertEqual(log.count("call stacks are not available"), 1, log)
        self.assertIn("install libunwind8", log)
        report = self.left(process.folder)[0][process.pid]
        self.assertEqual([entry["matched"] for entry in report["chosen_sites"]], [0])
        self.assertEqual(report["devices"][0]["passed_through"], 0)

    def test_where_it_makes_no_step_there_are_no_sites_once_a_library_is_gone(self):
        other = self.folder / "other"
        other.mkdir()
        shutil.copy(life.build_dir / "programs" / "libsteps_nowhere.so", other / "libunwind.so.8")
        path = self.environment(True)["LD_LIBRARY_PATH"]
        process = self.run_both(self.program(ALLOCATES), "libraries", LD_LIBRARY_PATH=f"{other}:{path}",
                                CISTERN_SITES="stacks")
        self.assertEqual(process.returncode, 0)
        sites = self.left(process.folder)[0][process.pid]["holders"][0]["sites"]["calls"]
        self.assertEqual((sites[0]["name"], sites[0]["stack"]), ("an unknown call site", []))
        self.assertGreaterEqual(sites[0]["allocations"], 99)


if __name__ == "__main__":
    life.main()
