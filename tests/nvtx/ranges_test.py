#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVTX as programs use it: which ranges and phases are seen, what the program and a tool that was named
before get, and what children inherit."""

import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "life"))
import life  # noqa: E402

VARIABLE = "NVTX_INJECTION64_PATH"
ANY = {"CISTERN_GRAPH_RANGE": "*"}
UNTRACKED = "-2 -2 -2 -2 -2\n"  # what NVTX answers where no tool is
TRACKED = "0 1 1 0 -1\n"


class Nvtx(life.Life):
    def setUp(self):
        super().setUp()
        self.ranges = self.program("nvtx_ranges_lazy")

    def environment(self, preload, **more):
        env = super().environment(preload, **more)
        if VARIABLE not in more:
            env.pop(VARIABLE, None)
        return env

    def run_one(self, *command, preload=True, **more):
        """Its stdout, and the lines of all logs after "cistern: debug: "."""
        process = self.start(command, preload, **more)
        status, out, err = self.finish(process)
        self.assertEqual((status, err), (0, ""), command)
        lines = [line for log in sorted(process.folder.glob("log.*"))
                 for line in log.read_text(encoding="utf-8").splitlines()]
        return out, [line.removeprefix("cistern: debug: ") for line in lines]

    def phases(self, way, **more):
        """The phases in their order: +name where one began, -name where it ended."""
        _, log = self.run_one(self.ranges, way, **(ANY | more))
        found = [re.fullmatch(r"phase \d+ (began|ended): (.*)", line) for line in log]
        return [("+" if line[1] == "began" else "-") + line[2] for line in found if line]


class Ranges(Nvtx):
    def test_nested(self):
        self.assertEqual(self.phases("nested"), ["+outer", "+innér ✓ 😀", "-innér ✓ 😀", "+", "-", "-outer"])

    def test_domains_and_registered_strings(self):
        self.assertEqual(
            self.phases("domains"),
            ["+one/a", "+two/b", "+one/registered", "-two/b", "-one/registered", "-one/a",
             "+two/wïde", "-two/wïde", "+one/", "-one/", "+after", "-after"])

    def test_started_ranges_end_in_any_order_on_any_thread_and_with_their_own(self):
        self.assertEqual(
            self.phases("started"),
            ["+first", "+pushed", "+second", "-first", "-pushed", "-second", "+alone", "-alone",
             "+dead", "+dies inside", "-dies inside", "-dead"])

    def test_cpp(self):
        self.assertEqual(self.phases("cpp"), ["+trainer/step", "+trainer/forward", "+cpp", "-cpp",
                                              "-trainer/forward", "-trainer/step"])

    def test_ways_are_told_once(self):
        _, log = self.run_one(self.ranges, "domains", **ANY)
        self.assertEqual([line for line in log if line.startswith("range ")],
                         ["range 1 in 0: one/a", "range 2 in 1: two/b", "range 3 in 2: one/registered",
                          "range 4 in 0: two/wïde", "range 5 in 0: one/", "range 6 in 0: after"])

    def test_threads_have_their_own(self):
        _, log = self.run_one(self.ranges, "threads", CISTERN_GRAPH_RANGE="none")
        ways = [re.fullmatch(r"range (\d+) in (\d+): (.*)", line) for line in log]
        names = {way[1]: way[3] for way in ways if way}
        inside = sorted(names[way[2]] for way in ways if way and way[3] == "inside")
        self.assertEqual(inside, sorted(f"thread {i}" for i in range(64)))
        self.assertEqual({way[2] for way in ways if way and way[3] == "left open"}, {"0"})

    def test_a_thread_that_ends_leaves_no_phase_open(self):
        phases = self.phases("threads")
        self.assertEqual(phases.count("+left open"), 64)
        self.assertEqual(phases.count("-left open"), 64)

    def test_a_forked_child_is_where_its_parent_was(self):
        self.assertEqual(sorted(self.phases("forks")),
                         sorted(["+parent", "+child", "-child", "-parent", "-parent"]))

    def test_what_is_too_deep_leaves_the_rest_balanced(self):
        _, log = self.run_one(self.ranges, "deep", **ANY)
        ways = [line for line in log if line.startswith("range ")]
        self.assertEqual(ways[255:], ["range 256 in 255: deep", "range 257 in 0: shallow"])

    def test_only_names_that_match_are_phases(self):
        self.assertEqual(self.phases("domains", CISTERN_GRAPH_RANGE="two/*"),
                         ["+two/b", "-two/b", "+two/wïde", "-two/wïde"])

    def test_push_and_pop_answer_the_level(self):
        self.assertEqual(self.run_one(self.ranges, "levels", preload=False)[0], UNTRACKED)
        self.assertEqual(self.run_one(self.ranges, "levels", **ANY)[0], TRACKED)

    def test_without_a_setting_nothing_is_seen(self):
        out, log = self.run_one(self.ranges, "levels")
        self.assertEqual((out, len(log)), (UNTRACKED, 1))
        self.assertIn("it used no CUDA", log[0])

    def test_without_pools_only_a_recording_sees_ranges(self):
        off = {**ANY, "CISTERN_POOL": "off"}
        self.assertEqual(self.run_one(self.ranges, "levels", **off)[0], UNTRACKED)
        self.assertEqual(self.run_one(self.ranges, "levels", CISTERN_RECORD="recording", **off)[0], TRACKED)

    def test_the_object_that_serves_malloc(self):
        self.preloaded = "libcistern.so"
        self.assertEqual(self.run_one(self.ranges, "levels", **ANY)[0], TRACKED)
        self.assertEqual(len(self.phases("cpp")), 6)

    def test_preloaded_by_another_name(self):
        link = self.folder / "by another name.so"
        link.symlink_to(life.build_dir / self.preloaded)
        other = self.folder / "other.so"
        other.symlink_to(link.name)
        self.preloaded = str(other)
        self.assertEqual(self.run_one(self.ranges, "levels", **ANY)[0], TRACKED)

    def test_python(self):
        packages = self.folder / "packages"
        fetched = subprocess.run(
            (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, "nvtx"),
            capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            self.skipTest(f"the package nvtx cannot be had: {fetched.stderr.strip()[-200:]}")
        program = self.folder / "program.py"
        program.write_text('import nvtx\nwith nvtx.annotate("step", domain="train"):\n'
                           '    with nvtx.annotate("load"):\n        pass\n', encoding="utf-8")
        _, log = self.run_one(sys.executable, program, PYTHONPATH=str(packages), **ANY)
        self.assertEqual([line for line in log if line.startswith("range ")],
                         ["range 1 in 0: train/step", "range 2 in 1: load"])


class Tools(Nvtx):
    """A tool that was named before gets each call as without Cistern, and the program its answers."""

    def tool(self, kind, preload, *command):
        notes = self.folder / f"notes-{preload}"
        notes.write_text("", encoding="utf-8")
        out, log = self.run_one(
            *command, preload=preload, NVTX_TOOL=kind, NVTX_TOOL_FILE=str(notes),
            **{VARIABLE: str(life.build_dir / "programs" / "libnvtx_tool.so")}, **ANY)
        return out, log, notes.read_text(encoding="utf-8").splitlines()

    def both(self, kind, way="tool"):
        bare_out, _, bare_notes = self.tool(kind, False, self.ranges, way)
        out, log, notes = self.tool(kind, True, self.ranges, way)
        self.assertEqual(notes, bare_notes)
        self.assertIn("initialise", notes)
        return bare_out, out, [line for line in log if line.startswith("range ")]

    def test_one_that_takes_most(self):
        bare, out, ranges = self.both("all")
        self.assertEqual(out, bare)
        self.assertIn("start 1000\n", out)
        self.assertEqual(ranges, ["range 1 in 0: outer", "range 2 in 1: started",
                                  "range 3 in 2: domain/string"])

    def test_one_that_takes_few(self):
        bare, out, ranges = self.both("few")
        self.assertEqual(out.replace("start 1\n", "start 0\n"), bare)  # nobody else counts those
        self.assertEqual(ranges, ["range 1 in 0: outer", "range 2 in 1: started"])

    def test_one_that_refuses(self):
        bare, out, ranges = self.both("refuse", "levels")
        self.assertEqual((bare, out), (UNTRACKED, TRACKED))
        self.assertEqual(ranges, ["range 1 in 0: a", "range 2 in 1: b"])

    def test_a_child_without_cistern_has_the_tool(self):
        child = ("env", "-u", "LD_PRELOAD", self.ranges, "tool")
        out, _, notes = self.tool("all", True, *child)
        self.assertEqual((out, notes), self.tool("all", False, *child)[::2])


class Children(Nvtx):
    def test_the_variable_names_the_object(self):
        out, _ = self.run_one("sh", "-c", f"echo ${VARIABLE}", **ANY)
        self.assertEqual(out, f"{life.build_dir / self.preloaded}\n")
        out, _ = self.run_one("sh", "-c", f"echo ${VARIABLE}")
        self.assertEqual(out, "\n")

    def test_children(self):
        out, _ = self.run_one("sh", "-c", f"{self.ranges} levels", **ANY)
        self.assertEqual(out, TRACKED)

    def test_a_child_without_cistern_is_as_without_a_tool(self):
        runtimes = ":".join(life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"))
        alone = f"LD_PRELOAD={runtimes}" if runtimes else "env -u LD_PRELOAD"
        for self.preloaded in ("libcistern-device.so", "libcistern.so"):
            out, _ = self.run_one("sh", "-c", f"{alone} {self.ranges} levels", **ANY)
            self.assertEqual(out, UNTRACKED)

    def test_a_child_with_another_object(self):
        other = self.folder / "copy.so"
        other.write_bytes((life.build_dir / "libcistern-device.so").read_bytes())
        objects = ":".join([*life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"), str(other)])
        out, _ = self.run_one("sh", "-c", f"LD_PRELOAD={objects} {self.ranges} levels", **ANY)
        self.assertEqual(out, TRACKED)


if __name__ == "__main__":
    life.main()
