# SPDX-License-Identifier: Apache-2.0
"""Which tests may notice a mutant, in which order, and whether one does."""

import collections
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time

import catalogue
import work_tree

# What makes each kind of test worth running: the targets that it runs, and the files made by them.
INSTALLED = ("cistern cistern-device cistern-trace cistern-config",
             ("libcistern.so", "libcistern-device.so", "cistern-trace", "cistern-config"))
KINDS = {"unit:": ("unit_tests", ("unit_tests",)), "preload/expect/host/": ("cistern", ("libcistern.so",)),
         "preload/": ("cistern-device", ("libcistern-device.so",)), "host/": ("cistern", ("libcistern.so",)),
         **dict.fromkeys(("launcher/", "life/", "nvtx/", "record/"), INSTALLED)}
UNDERSTOOD = {"WORKING_DIRECTORY", "TIMEOUT", "ENVIRONMENT", "SKIP_RETURN_CODE", "LABELS", "DEPENDS", "COST"}
# A test that hangs is given up after ten times its usual duration, and not before LEAST_LIMIT_S.
LEAST_LIMIT_S, UNKNOWN_LIMIT_S = 60, 120
MOST_NEIGHBOURS, MOST_ALIKE = 8, 24

Test = collections.namedtuple("Test", "name command folder environment limit_s skipped target products")
Outcome = collections.namedtuple("Outcome", "test status seconds")  # status: passed, failed, timeout
Verdict = collections.namedtuple("Verdict", "kind test why")  # kind: caught, survived, impossible


class OutOfTime(Exception):
    """The time given to the run is over."""


class NothingChanged(work_tree.BuildFails):
    """What is tested was built as it was."""


def read_tests(build_folder):
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build_folder, check=True,
                            capture_output=True, text=True).stdout
    for entry in json.loads(listed)["tests"]:
        kind = next((kind for prefix, kind in KINDS.items() if entry["name"].startswith(prefix)), None)
        properties = {p["name"]: p["value"] for p in entry["properties"]}
        if kind is not None and "soak" not in properties.get("LABELS", ()):
            if set(properties) - UNDERSTOOD:
                raise ValueError(f"{entry['name']}: this run does not know {set(properties) - UNDERSTOOD}")
            yield Test(entry["name"], entry["command"], properties["WORKING_DIRECTORY"],
                       dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", ())),
                       properties.get("TIMEOUT", math.inf), properties.get("SKIP_RETURN_CODE"), *kind)


class Memory:
    """What earlier runs found: the test that caught a mutant, and how long each test takes."""

    def __init__(self, path):
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.caught_by, self.seconds = known.get("caught_by", {}), known.get("seconds", {})

    def save(self):
        text = json.dumps({"caught_by": self.caught_by, "seconds": self.seconds}, indent=1)
        self.path.write_text(text, encoding="utf-8")

    def usual_s(self, test):
        return self.seconds.get(test.name, 1)

    def limit_s(self, test):
        usual = self.seconds.get(test.name)
        return min(test.limit_s, UNKNOWN_LIMIT_S if usual is None else max(LEAST_LIMIT_S, 10 * usual))


def words_of(*texts):
    """The words of names, cut so that `fill`, `filled` and `filling` are one."""
    words = re.findall(r"[A-Z]?[a-z]+", " ".join(texts))
    return {word.lower()[:4] for word in words if len(word) > 3}


def phases(mutant, path, mutants, tests, memory):
    """Lists of tests, each of the same targets, in the order in which they are worth trying: the test that
    caught the mutant last; those that caught its neighbours or have names that speak of the same
    things; all others, the fast ones before the slow ones. The unit tests come first, as they are
    fast, unless they would have to be compiled anew for a header."""
    targets = list(dict.fromkeys(target for target, _ in KINDS.values()))
    if path.endswith(".h"):
        targets.reverse()
    remembered = [test for test in tests if test.name == memory.caught_by.get(mutant.name)]
    of_target = {target: [test for test in tests if test.target == target] for target in targets}
    likely = [likely_tests(mutant, mutants, of_target[target], memory) for target in targets]
    every = [sorted(of_target[target], key=memory.usual_s) for target in targets]
    lists, seen = [], set()
    for some in [remembered, *likely, *every]:
        lists.append([test for test in some if test.name not in seen])
        seen.update(test.name for test in some)
    return [some for some in lists if some]


def likely_tests(mutant, mutants, tests, memory):
    neighbours = collections.Counter()
    for other in mutants:
        near = 4 * (other.function == mutant.function) + (other.subject == mutant.subject)
        neighbours[memory.caught_by.get(other.name)] += near
    words = {test.name: words_of(test.name) for test in tests}
    common = collections.Counter(word for of_test in words.values() for word in of_test)
    wanted = words_of(mutant.name, mutant.function, mutant.subject)
    likeness = {test.name: sum(1 / common[word] for word in words[test.name] & wanted) for test in tests}
    near = sorted((t for t in tests if neighbours[t.name]), key=lambda t: -neighbours[t.name])
    alike = sorted((t for t in tests if likeness[t.name]), key=lambda t: (-likeness[t.name], memory.usual_s(t)))
    by_name = {test.name: test for test in [*near[:MOST_NEIGHBOURS], *alike[:MOST_ALIKE]]}
    return list(by_name.values())


class Runner:
    def __init__(self, tree, memory, deadline=math.inf):
        self.tree, self.memory, self.deadline = tree, memory, deadline

    def outcomes(self, tests):
        """Runs the tests side by side and yields each outcome; what still runs at the end is ended."""
        waiting, running = collections.deque(tests), {}
        try:
            while waiting or running:
                while waiting and len(running) < os.cpu_count():
                    test = waiting.popleft()
                    process, output = self.start(test)
                    running[process] = (test, output, time.monotonic())
                time.sleep(0.005)
                if time.monotonic() > self.deadline:
                    raise OutOfTime
                for process in list(running):
                    test, output, started = running[process]
                    seconds = time.monotonic() - started
                    late = seconds > self.memory.limit_s(test)
                    if process.poll() is None and not late:
                        continue
                    end(process)
                    del running[process]
                    yield self.judge(test, "timeout" if late else process.returncode, seconds, output)
        finally:
            for process, (_, output, _) in running.items():
                end(process)
                output.close()

    @staticmethod
    def start(test):
        output = tempfile.TemporaryFile()
        process = subprocess.Popen(test.command, cwd=test.folder, env={**os.environ, **test.environment},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)
        return process, output

    def judge(self, test, status, seconds, output):
        with output:
            if status in (0, test.skipped):
                self.memory.seconds[test.name] = round(seconds, 2)
                return Outcome(test, "passed", seconds)
            output.seek(0)
            with self.tree.log.open("ab") as log:
                log.write(f"{time.strftime('--- %X')} {test.name}: {status}\n".encode() + output.read()[-20000:])
        return Outcome(test, "timeout" if status == "timeout" else "failed", seconds)

    def first_failure(self, tests):
        outcomes = self.outcomes(tests)
        failure = next((outcome for outcome in outcomes if outcome.status != "passed"), None)
        outcomes.close()
        return failure

    def failing(self, tests):
        """The names of those that do not pass."""
        return {outcome.test.name for outcome in self.outcomes(tests) if outcome.status != "passed"}

    def try_mutant(self, mutant, mutants, sources, tests):
        """The verdict on one mutant."""
        try:
            name, text = sources.planted(mutant)
        except catalogue.CannotPlant as error:
            return Verdict("impossible", None, str(error))
        with self.tree.holding(name, text):
            try:
                failure = self.try_phases(phases(mutant, name, mutants, tests, self.memory))
            except work_tree.BuildFails as error:
                return Verdict("impossible", None, str(error))
        if failure is None:
            self.memory.caught_by.pop(mutant.name, None)
            return Verdict("survived", None, "")
        self.memory.caught_by[mutant.name] = failure.test.name
        return Verdict("caught", failure.test, failure.status)

    def try_phases(self, lists):
        """The first failure. A target that is built as it was has nothing to tell."""
        anything = False
        for tests in lists:
            self.tree.build(tests[0].target)
            if any(map(self.tree.differs, tests[0].products)):
                anything = True
                failure = self.first_failure(tests)
                if failure is not None:
                    return failure
        if not anything:
            raise NothingChanged("nothing that is tested was built anew")
        return None


def end(process):
    """A test and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
