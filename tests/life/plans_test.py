#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs are recorded, planned and run again with their plan: they print what they print without
Cistern, and what is taken from the driver is what the plan takes."""

import itertools
import os
import re
import struct
import subprocess

import faults_test
import life

MIB = 1 << 20
POLICIES = ({}, {"FLAGS_allocator_strategy": "auto_growth"}, {"FLAGS_allocator_strategy": "naive_best_fit"},
            {"FLAGS_allocator_strategy": "thread_local"}, {"GE_USE_STATIC_MEMORY": "2"},
            {"GE_USE_STATIC_MEMORY": "3"}, {"GE_USE_STATIC_MEMORY": "4"}, {"FLAGS_init_allocated_mem": "1"},
            {"FLAGS_eager_delete_tensor_gb": "0.001"}, {"FLAGS_eager_delete_tensor_gb": "-1"},
            {"CISTERN_MEMORY_OPTIMIZE": "0"}, {"CISTERN_FREE_SYNC": "false"}, {"CISTERN_FREE_SYNC": "true"},
            {"FLAGS_enable_inplace_whitelist": "1", "CISTERN_SKIP_GRADS": "1"})


class Plans(life.Life):
    def plan_of(self, command, *options, **more):
        """The plan of a recorded run."""
        recording = self.folder / "run.rec"
        process = self.start(command, True, CISTERN_RECORD=str(recording), **more)
        self.assertEqual(self.finish(process)[0], 0)
        plan = self.folder / f"plan.{len(os.listdir(self.folder))}"
        subprocess.run((life.tools_dir / "cistern-plan", recording, "-o", plan, *options), check=True,
                       stdout=subprocess.DEVNULL)
        recording.unlink()
        return plan

    def replay(self, plan, *command, **more):
        """What the report tells of the device."""
        process = self.run_both(*command, CISTERN_PLAN=str(plan), **more)
        reports, _ = self.left(process.folder)
        return reports[process.pid]["devices"][0]

    def head(self, plan):
        """(requests, bytes, lower bound, before)"""
        words = struct.unpack("<8sIIIIQQQQQQQ", plan.read_bytes()[:80])
        return words[5], words[7], words[8], words[10]

    def test_a_run_is_served_from_its_plan_and_nothing_else(self):
        steps = (self.program("planned_steps_lazy"), "5")
        plan = self.plan_of(steps)
        requests, size, bound, _ = self.head(plan)
        self.assertEqual(size, bound)
        device = self.replay(plan, *steps)
        self.assertEqual(device["plan"], {"bytes": size, "served": requests, "occupied": 0, "entered": 1,
                                          "left": 0, "periods": 1, "made": 0})
        self.assertEqual(device["reserved_peak_bytes"], size)

    def test_the_report_for_people_tells_of_the_plan(self):
        steps = (self.program("planned_steps_lazy"), "2")
        process = self.start(steps, True, CISTERN_PLAN=str(self.plan_of(steps)), CISTERN_REPORT="text")
        self.finish(process)
        text = (process.folder / f"report.{process.pid}").read_text(encoding="utf-8")
        self.assertRegex(text, r"plan +[\d.]+ MiB; 106 requests served at their place, 0 whose place was not free")

    def test_an_iteration_is_served_again_and_again(self):
        plan = self.plan_of((self.program("planned_steps_lazy"), "5"), "--period", "iteration")
        requests, size, bound, before = self.head(plan)
        self.assertEqual((requests, size), (12 * 4, bound))
        self.assertGreaterEqual(before, 10)  # the weights
        device = self.replay(plan, self.program("planned_steps_lazy"), "9")
        told = device["plan"]
        self.assertEqual((told["entered"], told["left"], told["occupied"]), (1, 0, 0))
        self.assertGreaterEqual(told["periods"], 8)
        self.assertGreaterEqual(told["served"], 8 * requests)
        self.assertEqual(device["reserved_peak_bytes"], bound + 19 * MIB)  # what lives outside: the weights

    def test_each_device_follows_its_own_plan_of_one_file(self):
        steps = (self.program("planned_steps_lazy"), "5", "both")
        plans = [self.plan_of(steps, "--period", "iteration", "--device", str(device), SIMCUDA_DEVICES="2")
                 for device in (0, 1)]
        both = self.folder / "both.plan"
        both.write_bytes(b"".join(plan.read_bytes() for plan in plans))
        for us in ("0", "100"):
            with self.subTest(us=us):
                _, devices = self.watched(steps[0], "9", "both", CISTERN_PLAN=str(both), SIMCUDA_DEVICES="2",
                                          SIMCUDA_LATENCY=f"cuMemsetD32Async={us}us")
                for plan, device, outside in zip(plans, devices, (19 * MIB, 0)):
                    told = device["plan"]
                    self.assertEqual((told["entered"], told["left"], told["occupied"]), (1, 0, 0))
                    self.assertGreaterEqual(told["periods"], 8)
                    self.assertEqual(device["reserved_peak_bytes"], self.head(plan)[2] + outside)

    def test_what_is_different_leaves_the_plan_and_comes_back(self):
        plan = self.plan_of((self.program("planned_steps_lazy"), "5"), "--period", "iteration")
        requests = self.head(plan)[0]
        left = {"more": 1, "less": 1, "late": 0, "early": 1, "captured": 0}
        for odd, times in left.items():
            with self.subTest(odd=odd):
                told = self.replay(plan, self.program("planned_steps_lazy"), "9", odd)["plan"]
                self.assertEqual((told["left"], told["entered"]), (times, times + 1))
                self.assertGreaterEqual(told["served"], (7 - times) * requests)
                self.assertLessEqual(told["occupied"], requests)

    def test_a_plan_stands_before_every_policy(self):
        steps = (self.program("planned_steps_lazy"), "5", "late")
        plans = self.plan_of((steps[0], "5")), self.plan_of((steps[0], "5"), "--period", "iteration")
        for policy, plan in life.part(itertools.product(POLICIES, plans)):
            with self.subTest(policy=policy, plan=plan.name):
                self.assertGreater(self.replay(plan, *steps, **policy)["plan"]["served"], 10)

    def test_a_file_that_is_no_plan_is_told_once_and_nothing_changes(self):
        steps = (self.program("planned_steps_lazy"), "2")
        good = self.plan_of(steps)
        text = good.read_bytes()
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        cases = {"no plan: too short": b"short", "no plan: it begins otherwise": b"x" * 100,
                 "the checksum differs": text[:90] + b"\x55" + text[91:], "too short": text + b"more",
                 "do not match": text[:-1], "two plans of one device": text + text,
                 "a file cannot be read": None}
        for problem, content in cases.items():
            bad = self.folder / "bad.plan"
            if content is not None:
                bad.write_bytes(content)
            for path in (bad,) if content is not None else (fifo, self.folder, self.folder / "none"):
                with self.subTest(problem=problem, path=path):
                    process = self.run_both(*steps, CISTERN_PLAN=str(path))
                    log = (process.folder / f"log.{process.pid}").read_text(encoding="utf-8")
                    told = [line for line in log.splitlines() if "no plan is used" in line]
                    self.assertEqual(len(told), 1, log)
                    self.assertIn(problem, told[0])
                    reports, _ = self.left(process.folder)
                    self.assertEqual(reports[process.pid]["devices"][0]["plan"]["served"], 0)

    def test_a_plan_larger_than_the_device_or_aligned_otherwise_is_not_used(self):
        steps = (self.program("planned_steps_lazy"), "2")
        plan = self.plan_of(steps)
        for problem, more in {"more bytes than the device has": {"SIMCUDA_MEMORY_MB": "26"},
                              "another alignment": {"CISTERN_ALIGN": "4096"}}.items():
            with self.subTest(problem=problem):
                process = self.run_both(*steps, CISTERN_PLAN=str(plan), **more)
                log = (process.folder / f"log.{process.pid}").read_text(encoding="utf-8")
                self.assertEqual(log.count(problem), 1, log)

    def test_a_plan_is_made_while_the_program_runs_and_another_when_it_changes(self):
        for policy in life.part(POLICIES):
            if "FLAGS_eager_delete_tensor_gb" in policy:
                continue  # memory is not clean where the plan wants it, so what is served differs
            with self.subTest(policy=policy):
                process = self.run_both(self.program("planned_steps_lazy"), "until", CISTERN_PLAN="auto",
                                        CISTERN_LOG="info", CISTERN_LOG_FILE="log.1", **policy)
                (process.folder / "log.1").rename(process.folder / f"log.{process.pid}")
                reports, _ = self.left(process.folder)
                told = reports[process.pid]["devices"][0]["plan"]
                self.assertGreaterEqual(told["made"], 2)
                self.assertGreaterEqual(told["entered"], 2)
                if policy != {"CISTERN_FREE_SYNC": "false"}:  # what is clean then depends on the device
                    self.assertGreaterEqual(told["served"], 2 * 8 * 48)

    def shaped(self, mode, **more):
        """What the report tells of a run of planned_shapes, for which plans are made."""
        process = self.run_both(self.program("planned_shapes_lazy"), mode, CISTERN_PLAN="auto", CISTERN_LOG="info",
                                CISTERN_LOG_FILE="log.1", **more)
        (process.folder / "log.1").rename(process.folder / f"log.{process.pid}")
        return self.left(process.folder)[0][process.pid]["devices"][0]["plan"]

    def test_shapes_that_change_and_come_back_overlap_or_never_repeat(self):
        for mode, least in (("back", 3), ("common", 2), ("overlap", 1), ("streams", 1), ("never", 0)):
            for settings in life.part(({}, {"CISTERN_FREE_SYNC": "false"}, {"CISTERN_SITES": "stacks"})):
                with self.subTest(mode=mode, settings=settings):
                    told = self.shaped(mode, **settings)
                    self.assertGreaterEqual(told["made"], least)
                    if mode == "never":
                        self.assertEqual((told["made"], told["served"]), (0, 0))
                    elif "CISTERN_FREE_SYNC" not in settings:  # what is clean then depends on the device
                        self.assertGreater(told["served"], 0)

    def test_threads_of_two_devices_change_their_shapes_while_kernels_run(self):
        devices, program = {"SIMCUDA_DEVICES": "2"}, self.program("planned_threads_lazy")
        self.assertEqual(self.alone((program, "4"), devices), (0, "wrong: 0\n", ""))
        rows = (4, {}), (4, {"CISTERN_FREE_SYNC": "false"}), (4, {"FLAGS_allocator_strategy": "auto_growth"}), (16, {})
        for threads, policy in life.part(rows):
            command = program, str(threads)
            with self.subTest(threads=threads, policy=policy):
                out, told = self.watched(*command, CISTERN_PLAN="auto", CISTERN_LOG="info", CISTERN_LOG_FILE="log.1",
                                         **devices, **policy)
                self.assertEqual(out, "wrong: 0\n")
                for device in told:
                    self.assertGreaterEqual(device["plan"]["made"], 3)  # one, and one for each new shape
                    self.assertGreater(device["plan"]["served"], 0)

    def test_steps_in_phases_are_planned_whatever_lies_between(self):
        for mode, settings in (("marked", {}), ("ranges", {"CISTERN_GRAPH_RANGE": "step"})):
            with self.subTest(mode=mode):
                told = self.shaped(mode, **settings)
                self.assertEqual((told["made"], told["entered"], told["left"], told["occupied"]), (1, 1, 0, 0))
                # Each of the ten steps behind the plan, and none of what lies between.
                self.assertGreaterEqual(told["served"], 10 * 24)
                self.assertEqual(told["served"] % 24, 0)

    def watched(self, *command, **more):
        """A run of which the race watcher and the order's oracle find nothing; its output and report."""
        process = self.start(command, True, SIMCUDA_RACES="report", SIMCUDA_RACES_FILE="races", **more)
        status, out, _ = self.finish(process)
        self.assertEqual(status, 0, command)
        races = process.folder / "races"
        if races.exists():
            self.assertNotRegex(races.read_text(encoding="utf-8"), r"(?m)^simcuda: (race|invalid access|order)")
            races.unlink()
        return out, self.left(process.folder)[0][process.pid]["devices"]

    def random_program(self, seed, more, **settings):
        """Runs it with a plan of its own requests, then with plans that are made while it runs."""
        command = (self.program("random_work_lazy"), f"seed={seed}", "operations=1500", *more)
        settings = {"SIMCUDA_DEVICES": "2", "SIMCUDA_LATENCY": "cuLaunchKernel=50us"} | settings
        for plan in (self.plan_of(command, **settings), "auto"):
            with self.subTest(seed=seed, more=more, plan=plan):
                out, devices = self.watched(*command, CISTERN_PLAN=str(plan), **settings)
                self.assertIn("wrong words 0\n", out)
                self.assertIn("all memory is free again: yes, 4 times\n", out)
                if plan != "auto":
                    self.assertGreater(devices[0]["plan"]["served"], 0)

    def test_random_programs_are_served_from_their_plans(self):
        for seed, more in ((1, ()), (2, ()), (3, ("threads=4",)), (4, ("threads=32", "live_mb=16")),
                           (5, ("devices=2", "threads=4"))):
            self.random_program(seed, more, **({} if more else {"SIMCUDA_SCHEDULE": f"seed:{seed}"}))

    def test_random_programs_with_endless_kernels_and_living_graphs(self):
        for seed, more in ((6, ("threads=64", "live_mb=8", "endless=2")),
                           (7, ("threads=8", "endless=3", "graphs=8", "devices=2"))):
            self.random_program(seed, more)

    def test_random_programs_on_a_device_that_is_nearly_full(self):
        for seed, more in ((8, ("threads=4", "graphs=8")), (9, ("devices=2", "threads=8", "endless=2"))):
            self.random_program(seed, (*more, "live_mb=32", "most_mb=8"), SIMCUDA_MEMORY_MB="96")

    def test_work_in_flight_and_a_device_that_is_nearly_full(self):
        plan = self.plan_of((self.program("planned_steps_lazy"), "5"), "--period", "iteration")
        bare = self.start((self.program("planned_steps_lazy"), "9"), False, SIMCUDA_MEMORY_MB="40")
        self.assertEqual(self.finish(bare)[0], 1)  # the driver alone needs 42
        for memory, us in life.part(itertools.product((1024, 42, 40), (20, 100))):
            with self.subTest(memory=memory, us=us):
                out, devices = self.watched(self.program("planned_steps_lazy"), "9", CISTERN_PLAN=str(plan),
                                            SIMCUDA_MEMORY_MB=str(memory), SIMCUDA_LATENCY=f"cuMemsetD32Async={us}us")
                self.assertEqual(out, "442 blocks, wrong: 0\n")
                self.assertGreater(devices[0]["plan"]["served"] + devices[0]["plan"]["occupied"], 300)

    def longest_us(self, process):
        """The longest that a free and the request behind it took, in the time of the test clock."""
        status, out, err = self.finish(process)
        self.assertEqual((status, err), (0, ""), process.args)
        return int(re.fullmatch(r"longest (\d+) us\n", out)[1])

    def test_a_place_in_use_is_handed_out_once_it_is_clean_and_nobody_waits_longer_than_the_driver(self):
        self.beside = ("libtestclock.so",)
        clock = ":".join((*life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"), self.program(self.beside[0])))
        command, requests, card = self.program("planned_in_flight_lazy"), 18, "20"  # a block of 12 MiB, and no other
        for us in (0, 20, 100):
            plan = self.plan_of((command, str(us)))
            # Beside the kernel the place is not clean.
            beside_kernel = requests if us == 0 else 12
            for mode, served in (("alone", beside_kernel), ("device", beside_kernel), ("later", requests), ("short", None),
                                 ("stream", None)):
                words, settings = (command, str(us), mode), {"SIMCUDA_DEVICES": "2"}
                if mode == "short":
                    settings["SIMCUDA_MEMORY_MB"] = card
                if mode != "stream":  # there the driver's free does not come back
                    bare = self.longest_us(self.start(words, False, LD_PRELOAD=clock, **settings))
                    self.assertGreaterEqual(bare, us)
                with self.subTest(us=us, mode=mode):
                    out, devices = self.watched(*words, CISTERN_PLAN=str(plan), CISTERN_FREE_SYNC="false", **settings)
                    told = devices[0]["plan"]
                    self.assertEqual(told["served"] + told["occupied"], requests)
                    if served is not None:
                        self.assertEqual(told["served"], served)
                    if mode != "short":  # there the request has to wait; that it came back says for what
                        self.assertLessEqual(int(out.split()[1]), us)
                if mode != "stream":
                    with self.subTest(us=us, mode=mode, free_sync="auto"):
                        _, devices = self.watched(*words, CISTERN_PLAN=str(plan), **settings)
                        told = devices[0]["plan"]
                        self.assertEqual((told["served"], told["occupied"]), (requests, 0))

    def test_what_runs_out_of_memory_otherwise_completes_with_a_plan(self):
        loops = {"train": ("iteration", "100"), "serve": ("thread", "120")}
        strategies = ("legacy", "naive_best_fit", "auto_growth", "thread_local")
        for loop, (period, card) in loops.items():
            command = (self.program("fragmenting_static"), loop, "4")
            plan = self.plan_of(command, "--period", period)
            short = {"alone": None, "default": {}} | {name: {"FLAGS_allocator_strategy": name} for name in strategies}
            enough = {"file": {"CISTERN_PLAN": str(plan)}, "unit by unit": {"GE_USE_STATIC_MEMORY": "3"},
                      "auto": {"CISTERN_PLAN": "auto", "CISTERN_LOG": "info", "CISTERN_LOG_FILE": "log.1"}}
            for ways, end in ((short, (3, "out of memory\n")), (enough, (0, "damaged words 0\n"))):
                for name, settings in ways.items():
                    with self.subTest(loop=loop, way=name):
                        process = self.start(command, settings is not None, SIMCUDA_MEMORY_MB=card, **(settings or {}))
                        self.assertEqual(self.finish(process)[:2], end)

    def test_each_thread_follows_its_plan_whatever_the_others_do(self):
        command = (self.program("fragmenting_static"), "serve", "4")
        plan = self.plan_of(command, "--period", "thread")
        out, devices = self.watched(*command, CISTERN_PLAN=str(plan), SIMCUDA_LATENCY="cuLaunchKernel=20us")
        self.assertEqual(out, "damaged words 0\n")
        told = devices[0]["plan"]
        self.assertEqual((told["entered"], told["left"], told["occupied"]), (4, 0, 0))
        self.assertGreater(told["served"], 3000)
        # Eight rounds of all requests, but for what each thread asks for before its plan begins.
        self.assertEqual(told["periods"], 4 * 7)

    def test_each_call_of_the_driver_fails_once(self):
        steps = (self.program("planned_steps_lazy"), "9")
        plan = self.plan_of((steps[0], "5"), "--period", "iteration")
        rules = {call: rule for call, rule in faults_test.RULES.items() if rule != faults_test.TOLD}
        self.assertGreater(len(rules), 20)
        for nth, way, (call, rule) in life.part(itertools.product((1, 2), (plan, "auto"), sorted(rules.items()))):
            with self.subTest(call=call, nth=nth, way=way):
                out, _ = self.watched(*steps, CISTERN_PLAN=str(way), SIMCUDA_FAIL=f"{call}:{nth}=2")
                told = "0" if rule == faults_test.SILENT else "[01]"
                self.assertRegex(out, rf"\A442 blocks, wrong: {told}\n\Z")

    def test_the_driver_refuses_the_chunk_or_fails(self):
        steps = (self.program("planned_steps_lazy"), "3")
        plan = self.plan_of(steps)
        for nth in range(1, 4):
            with self.subTest(nth=nth):
                process = self.start(steps, True, CISTERN_PLAN=str(plan),
                                     SIMCUDA_FAIL=f"cuMemAlloc_v2:{nth}=2")
                status, out, _ = self.finish(process)
                self.assertEqual((status, out), (0, "154 blocks, wrong: 0\n"))


if __name__ == "__main__":
    life.main()
