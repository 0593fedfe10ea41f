#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports: where they go, what they say of the run, what is said where they cannot be written, and
that the page of their keys has each of them."""

import datetime
import json
import os
import re
import select
import shutil
import socket
import subprocess
import time

import life

VERSION = re.search(r'kVersion\[\] = "(.+)"', (life.ROOT / "config/known.h").read_text())[1]
EVERYTHING = {"CISTERN_SITES": "stacks", "CISTERN_SKIP_GRADS": "true", "CISTERN_MEMORY_OPTIMIZE": "0",
              "FLAGS_fuse_parameter_groups_size": "3",
              "FLAGS_free_idle_memory": "true", "FLAGS_eager_delete_tensor_gb": "1",
              "FLAGS_eager_delete_scope": "false", "FLAGS_limit_of_tmp_allocation": "1048576",
              "FLAGS_alloc_fill_value": "7"}


def keys_of(value, path=""):
    """Every key by its path; those of a list's elements as `list[]`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}{key}"
            yield from keys_of(inner, f"{path}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{path[:-1]}[].")


class Reports(life.Life):
    def run_one(self, way="exit", limits=(), **more):
        """A program's end, without and with; the process with Cistern, and what that left on stderr."""
        command = (self.program("endings_lazy"), way)
        bare = self.start(command, False)
        status, out, _ = self.finish(bare)
        if limits:
            command = ("prlimit", *limits, *command)
        process = self.start(command, True, **{"CISTERN_LOG": "warn"} | more)
        result = self.finish(process)
        self.assertEqual(result[:2], (status, out))
        return process, result[2]

    def log_of(self, process):
        return "".join(path.read_text() for path in sorted(process.folder.glob("log.*")))

    def test_it_names_the_run(self):
        before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        process, _ = self.run_one()
        after = datetime.datetime.now(datetime.UTC)
        report = self.left(process.folder)[0][process.pid]
        self.assertEqual(report["version"], VERSION)
        self.assertEqual(report["host"], socket.gethostname())
        self.assertEqual(report["program"], os.path.realpath(self.program("endings_lazy")))
        ended = datetime.datetime.fromisoformat(report["ended"])
        self.assertLessEqual(before, ended)
        self.assertLessEqual(ended, after)
        process, _ = self.run_one(CISTERN_REPORT="text")
        text = next(process.folder.glob("report.*")).read_text()
        for part in (report["program"], report["host"], VERSION, str(process.pid)):
            self.assertIn(part, text.splitlines()[0])

    def test_it_has_the_devices_that_were_used(self):
        process, _ = self.run_one(SIMCUDA_DEVICES="3")
        devices = self.left(process.folder)[0][process.pid]["devices"]
        self.assertEqual([device["device"] for device in devices], [0])

    def test_a_file_is_named_after_the_process_the_host_and_the_rank(self):
        process, _ = self.run_one(CISTERN_REPORT_FILE="%%r%r-of-%h.%p.json", CISTERN_LOG="info",
                                  CISTERN_LOG_FILE="%p%p%%", OMPI_COMM_WORLD_RANK="12", RANK="3")
        names = {path.name for path in process.folder.iterdir()}
        pid = process.pid
        self.assertEqual(names, {f"%r12-of-{socket.gethostname()}.{pid}.json", f"{pid}{pid}%"})

    def test_a_relative_file_lies_where_the_program_began(self):
        process, _ = self.run_one(way="elsewhere", CISTERN_LOG="info")
        self.assertEqual(len(self.left(process.folder)[0]), 1)
        self.assertEqual(len(list(process.folder.glob("log.*"))), 1)

    def test_one_that_cannot_be_written_is_said(self):
        for file, why in (("/dev/full", "No space left"), ("/no/folder/at/all", "No such file")):
            process, err = self.run_one(CISTERN_REPORT_FILE=file)
            self.assertEqual(err, "")
            self.assertRegex(self.log_of(process), f"cannot be written to {file}: {why}")

    def test_one_that_stderr_does_not_take_is_said_in_the_log(self):
        command = ("sh", "-c", 'unset CISTERN_REPORT_FILE; exec "$0" exit 2> /dev/full', self.program("endings_lazy"))
        process = self.start(command, True, CISTERN_LOG="warn", CISTERN_REPORT="text")
        self.assertEqual(self.finish(process)[2], "")
        self.assertIn("cannot be written to stderr: No space left", self.log_of(process))

    def test_one_beyond_the_limit_of_files_ends_no_program(self):
        process, err = self.run_one(way="no long files")
        self.assertEqual(err, "")
        self.assertIn("cannot be written", self.log_of(process)[:100])

    def test_debug_shows_what_the_pools_ask_of_the_driver(self):
        process, _ = self.run_one(CISTERN_LOG="debug", CISTERN_FREE_SYNC="false")  # else nothing is marked
        log = self.log_of(process)
        for line in (r"pool: takes address=0x[0-9a-f]+ bytes=[0-9]+ -> 0", "pool: marks the work so far"):
            self.assertRegex(log, line)
        self.assertNotIn("pool:", self.log_of(self.run_one(CISTERN_LOG="info")[0]))

    def test_debug_shows_what_the_pinned_pool_asks_of_the_driver(self):
        process = self.start((self.program("pinned_steady_lazy"), "synchronised", "20"), True)
        self.assertEqual(self.finish(process)[0], 0)
        self.assertRegex(self.log_of(process), r"pool: takes pinned memory address=0x[0-9a-f]+ bytes=[0-9]+ -> 0")

    def test_what_changes_nothing_beside_pool_off_is_said_once(self):
        process, err = self.run_one(CISTERN_POOL="off", CISTERN_GPU_LIMIT="1G")
        log = self.log_of(process)
        self.assertEqual((err, log.count("\n"), self.left(process.folder)[0]), ("", 1, {}))
        for name in ("CISTERN_GPU_LIMIT", "CISTERN_REPORT", "CISTERN_REPORT_FILE"):
            self.assertIn(f" {name}", log)

    def test_few_descriptors_are_enough(self):
        process, err = self.run_one(limits=("--nofile=20",))
        self.assertEqual((err, len(self.left(process.folder)[0])), ("", 1))

    def test_a_long_one_is_whole(self):
        process = self.start([self.program("deep_sites_lazy")], True, CISTERN_SITES="stacks")
        self.finish(process)
        sites = self.left(process.folder)[0][process.pid]["holders"][0]["sites"]
        self.assertGreater(len(json.dumps(sites)), 300_000)
        self.assertGreater(max(len(site["stack"]) for site in sites["peak"]), 55)

    def test_a_long_one_is_whole_where_a_pipe_is_read_slowly(self):
        for own_name in (True, False):
            reads, writes = os.pipe()
            os.set_blocking(writes, False)
            environment = self.environment(True, CISTERN_SITES="stacks", CISTERN_LOG_FILE="/dev/null")
            environment["CISTERN_REPORT_FILE"] = f"/dev/fd/{writes}"
            if not own_name:
                del environment["CISTERN_REPORT_FILE"]
            with subprocess.Popen([self.program("deep_sites_lazy")], env=environment, pass_fds=(writes,),
                                  stdout=subprocess.DEVNULL, stderr=writes):
                with open(reads, "rb") as pipe:
                    while select.select([], [writes], [], 0)[1]:
                        time.sleep(0.01)  # until the pipe is full
                    os.close(writes)
                    report = json.load(pipe)
            self.assertGreater(len(json.dumps(report)), 300_000)

    def test_a_pipe_that_nobody_reads_holds_no_program_up(self):
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        process = self.start([self.program("deep_sites_lazy")], True, CISTERN_SITES="stacks",
                             CISTERN_REPORT_FILE=f"/proc/{os.getpid()}/fd/{writes}")
        self.addCleanup(os.close, writes)
        self.assertEqual(self.finish(process)[0], 0)
        self.assertIn("the report cannot be written", self.log_of(process))

    def test_a_rank_that_is_empty_is_none(self):
        process, _ = self.run_one(PMI_RANK="", RANK="2", CISTERN_REPORT_FILE="report.rank%r")
        self.assertTrue((process.folder / "report.rank2").exists())

    def test_lines_stay_lines_whatever_a_setting_or_name_holds(self):
        program = self.folder / "pro\ngram"
        shutil.copy(self.program("endings_lazy"), program)
        environment = {"CISTERN_SKIP_OPT_SET": "one\ntwo\033c", "CISTERN_LOG": "info", "CISTERN_REPORT": "text"}
        process = self.start([str(program), "exit"], True, **environment)
        self.finish(process)
        report = next(process.folder.glob("report.*")).read_text()
        for text, entry in ((report, "'one?two?c' matched nothing"), (report, "pro?gram, on "),
                            (self.log_of(process), "SKIP_OPT_SET=one?two?c")):
            self.assertIn(entry, text)
            for line in text.splitlines():
                self.assertRegex(line, "^cistern: [ -~]+$")

    def test_the_text_has_the_holders_that_the_json_has_first(self):
        def mib(number):
            return f"{number / (1 << 20):.1f} MiB"
        lists = {"live at the peak": ("peak", lambda site: mib(site["peak_bytes"])),
                 "live at the end": ("end", lambda site: f"{mib(site['live_bytes'])} in {site['live_blocks']} blocks"),
                 "temporary blocks": ("temporary", lambda site: f"{site['temporary']} of {site['allocations']}"),
                 "most allocations": ("calls", lambda site: str(site["allocations"])),
                 "most bytes": ("bytes", lambda site: mib(site["bytes"]))}
        texts = []
        for form in ("text", "json"):
            process = self.start((self.program("recorded_lazy"),), True, CISTERN_SITES="stacks", CISTERN_REPORT=form)
            self.assertEqual(self.finish(process)[0], 0)
            texts.append(next(process.folder.glob("report.*")).read_text())
        sites = json.loads(texts[1])["holders"][0]["sites"]
        told = re.search(r"who holds memory of device 0: .*\n((?:cistern:  .*\n)+)", texts[0])[1]
        told = re.split(r"cistern:   (\w.*), by call site\n", told)[1:]
        self.assertEqual(told[::2], list(lists))
        for title, lines in zip(told[::2], told[1::2]):
            order, figure = lists[title]
            expected = []
            for site in sites[order][:5]:
                expected += [[figure(site), site["name"]],
                             *([frame] for frame in site["stack"] if title == "live at the end")]
            self.assertEqual([re.split(" {2,}", line)[1:] for line in lines.splitlines()], expected)

    def test_a_function_without_a_name_is_not_called_like_its_callee(self):
        process = self.start((self.program("recorded_lazy"),), True, CISTERN_SITES="stacks")
        self.assertEqual(self.finish(process)[0], 0)
        stacks = [site["stack"] for site in self.left(process.folder)[0][process.pid]["holders"][0]["sites"]["calls"]]
        for stack in stacks:  # of libc, whose file names no inner function, is what calls main()
            main = next(at for at, frame in enumerate(stack) if frame.startswith("main+"))
            self.assertRegex(stack[main + 1], r"^(?!main\+).+ \(libc\.so\.6\)$")

    def test_the_text_tells_an_exporter_and_an_importer_of_the_other(self):
        process = self.start((self.program("ipc_many_lazy"), "1", "1", "1"), True, CISTERN_REPORT="text")
        self.assertEqual(self.finish(process)[0], 0)
        texts = [path.read_text() for path in process.folder.glob("report.*")]
        told = [re.search(r"IPC              (\d+) handles .*; (\d+) of other processes opened here", text) for text in texts]
        self.assertEqual({(int(one[1]) > 0, int(one[2]) > 0) for one in told if one}, {(True, False), (False, True)})

    def test_the_text_has_what_frees_waited_for(self):
        def lines(mode, **more):
            settings = {"CISTERN_REPORT": "text", "SIMCUDA_SCHEDULE": "seed:3"} | more
            process = self.start((self.program("free_reasons_lazy"), mode), True, **settings)
            self.assertEqual(self.finish(process)[0], 0)
            return re.findall("^cistern: (frees .*)", next(process.folder.glob("report.*")).read_text(), re.M)
        ms = r"\d+\.\d{3} ms"
        for mode, expected in (
            ("idle", []),
            ("sees", [f"frees waited     5 times, {ms}: 5 for work visible to the host, 0 for all work"]),
            ("unknown", [f"frees waited     1 times, {ms}: 0 for work visible to the host, 1 for all work .not_seen_idle 1.",
                         "frees in order   4 left to the device: 3 events, 3 waits of streams; "
                         r"the host waited 0 times, 0\.000 ms"]),
            ("query", ["frees in order   1 left to the device: 1 events, 0 waits of streams; "
                       f"the host waited 1 times, {ms} .query 1."]),
        ):
            told = lines(mode)
            self.assertEqual(len(told), len(expected), told)
            for line, pattern in zip(told, expected):
                self.assertRegex(line, f"^{pattern}$")
        self.assertEqual(lines("plain", CISTERN_FREE_SYNC="false"), [])

    def text_of(self, *command, **more):
        process = self.start((self.program(command[0]), *command[1:]), True, CISTERN_REPORT="text", **more)
        self.assertEqual(self.finish(process)[0], 0)
        return next(process.folder.glob("report.*")).read_text()

    def test_the_text_has_what_the_driver_did_not_take_back(self):
        settings = {"GE_USE_STATIC_MEMORY": "3", "SIMCUDA_MEMORY_MB": "256"}
        refused = self.text_of("left_units_lazy", "ended", SIMCUDA_FAIL="cuMemUnmap=999", **settings)
        self.assertIn("not returned   8 chunks or units", refused)
        self.assertNotIn("not returned", self.text_of("left_units_lazy", "ended", **settings))

    def test_the_text_has_what_memory_pools_keep(self):
        self.beside = ("libtestclock.so",)  # which the program stops
        settings = {"SIMCUDA_POOL_STEP_MB": "32"}
        kept = self.text_of("kept_pools_shared_lazy", "graphs", **settings)
        told = re.search(r"memory pools     (\d+) pools of the driver kept recently used memory: at most (\d+)\.0 MiB; "
                         r"trimmed (\d+) times, (\d+)\.0 MiB", kept)
        self.assertEqual(told[1], "2")
        self.assertTrue(all(int(number) > 0 for number in told.groups()), told[0])
        off = self.text_of("kept_pools_shared_lazy", "graphs", CISTERN_MEMPOOL_THRESHOLD="off", **settings)
        self.assertNotIn("memory pools ", off)

    def test_host_memory_adds_up(self):
        self.preloaded = "libcistern.so"
        if not self.serves_malloc():
            self.skipTest("malloc is not served")
        process, _ = self.run_one()
        host = self.left(process.folder)[0][process.pid]["host_memory"]
        self.assertGreater(host["chunks"], 0)
        self.assertGreater(host["live_bytes"], 0)
        self.assertGreaterEqual(host["reserved_bytes"], host["live_bytes"] + host["idle_bytes"])

    def test_it_reads_no_time_zone(self):
        zone = self.folder / "zone"  # whoever opens it waits for ever
        os.mkfifo(zone)
        for form in ("text", "json"):
            self.run_one(CISTERN_REPORT=form, TZ=f":{zone}")

    def lines_of(self, *command, **settings):
        process = self.start(command, True, **settings)
        code, _, said = self.finish(process)
        self.assertEqual(code, 0, said)
        return said.splitlines(), process

    def test_that_no_cuda_was_used_is_one_line(self):
        line = r"cistern: info: no report of process (\d+), [^;]*; it used no CUDA; .*"
        script = "sort /dev/null; for i in 1 2 3; do sh -c 'sort /dev/null' & done; wait; (exit 3); exec sort /dev/null"
        for how in ("text", "json"):
            environment = {"CISTERN_REPORT": how, "CISTERN_REPORT_FILE": "report"}
            for command in (("sort", "/dev/null"), ("bash", "-c", script), ("bash", "-c", "sort /dev/null; true")):
                [said], process = self.lines_of("env", "-u", "CISTERN_REPORT_FILE", *command, **environment)
                self.assertEqual(int(re.fullmatch(line, said)[1]), process.pid)
            [said], process = self.lines_of("env", "-u", "CISTERN_LOG_FILE", "bash", "-c", "sort /dev/null; true", **environment)
            self.assertRegex(said, line)
            self.assertEqual(list(process.folder.glob("report*")), [])

    def test_a_shell_leaves_the_report_of_its_child_alone(self):
        shell = ("env", "-u", "CISTERN_LOG_FILE", "bash", "-c")
        [said], process = self.lines_of(*shell, f"{self.program('endings_lazy')} exit > /dev/null; true", CISTERN_REPORT_FILE="report",
                                        CISTERN_LOG="warn")
        self.assertIn("no report of process", said)
        self.assertNotEqual(json.loads((process.folder / "report").read_text(encoding="utf-8"))["pid"], process.pid)

    def test_any_byte_of_a_setting_is_text(self):
        process, _ = self.run_one(CISTERN_SKIP_OPT_SET=os.fsdecode(b"\xff\xc3"))
        entries = self.left(process.folder)[0][process.pid]["chosen_sites"]
        self.assertEqual([entry["entry"] for entry in entries], ["\ufffd\ufffd"])

    def graphs(self, *arguments, mode="2", **more):
        process = self.start((self.program("graphs_in_flight_lazy"), *arguments), True, CISTERN_LOG="warn",
                             GE_USE_STATIC_MEMORY=mode, **more)
        self.assertEqual(self.finish(process)[0], 0)
        return process

    def test_what_graphs_gain_is_the_sum_without_what_was_taken(self):
        for mode in "24":
            device = self.left(self.graphs("endless", mode=mode).folder)[0].popitem()[1]["devices"][0]
            arena = device["arena"]
            self.assertEqual(arena["mode"], int(mode))
            self.assertGreater(arena["peak_bytes"], 0)
            self.assertGreater(arena["sum_bytes"], arena["peak_bytes"])
            self.assertEqual(arena["gain_bytes"], arena["sum_bytes"] - arena["peak_bytes"])
            process = self.graphs("endless", mode=mode, CISTERN_REPORT="text")
            text = next(process.folder.glob("report.*")).read_text()
            self.assertIn(f"arena          static memory mode {mode}: 2 graphs", text)
        self.assertEqual(device["units"]["mode"], 4)
        self.assertIn("units          static memory mode 4: ", text)

    def test_graphs_that_overlap_are_said_once(self):
        self.assertEqual(self.log_of(self.graphs("threads")).count("graphs run at the same time"), 1)

    def test_the_page_has_every_key(self):
        page = (life.ROOT / "shim/REPORT.md").read_text()
        written = set(re.findall(r"^\| `([^`]+)` \|", page, re.M))
        seen = set()
        self.preloaded = "libcistern.so"
        if not self.serves_malloc():
            written = {key for key in written if not key.startswith("host_memory")}
        processes = [self.run_one(**settings)[0] for settings in
                     ({}, EVERYTHING, {"CISTERN_PLAN": "auto"}, *({"GE_USE_STATIC_MEMORY": mode} for mode in "234"))]
        self.beside = ("libtestclock.so",)  # else the hint depends on when the background thread comes
        torch = shutil.copy(life.build_dir / "programs" / "libsite_one.so", self.folder / "libc10_cuda.so")
        for words in (("loads", torch), ("few",)):
            processes.append(self.start((self.program("changing_sizes_lazy"), *words), True))
            self.assertEqual(self.finish(processes[-1])[0], 0)
        for process in processes:
            for key in keys_of(self.left(process.folder)[0][process.pid]):
                key = re.sub(r"waited_for_all\.[^.]+", "waited_for_all.REASON", key)
                key = re.sub(r"debts_waited_for\.[^.]+", "debts_waited_for.CALL", key)
                key = re.sub(r"by_kind\.[^.]+", "by_kind.KIND", key)
                key = re.sub(r"holders\[\]\.(sites|ranges)\.(peak|end|temporary|calls|bytes)",
                             r"holders[].\1.ORDER", key).replace("ranges.ORDER[]", "sites.ORDER[]")
                seen.add(re.sub(r"shortages_ended_by\..+", "shortages_ended_by.STEP", key))
        self.assertEqual(written, seen)


if __name__ == "__main__":
    life.main()
