# SPDX-License-Identifier: Apache-2.0
"""The tests of memory in CuPy's own suite: the outcome of each, and how many of a file must pass.

What fails without Cistern as well needs a kernel or a library with a static runtime (cuBLAS, cuRAND), which
a simulator does not have; each such outcome names the code. Not run is what asks how much the driver's pool
holds right after a free on a stream, which depends on when the device gets there. One test frees on another
stream than it allocated on. The numbers are there so that a client that no longer starts is noticed.
"""

# client: {"devices": 2, "limit_s": 600, "own_races": true}

import collections
import os
import pathlib
import re
import sys

import pytest

LEFT_OUT = "TestMemoryAsyncPool and (bytes or large_chunk)"
FOLDER = pathlib.Path(sys.prefix).resolve() / "prepared/tests"
MUST_PASS = {
    "memory_hooks_tests": 3,
    "test_device.py": 16,
    "test_driver.py": 3,
    "test_graph.py": 4,
    "test_memory.py": 79,
    "test_memory_hook.py": 1,
    "test_pinned_memory.py": 12,
    "test_profile.py": 2,
    "test_runtime.py": 4,
    "test_stream.py": 33,
    "test_texture.py": 288,
}


class Outcomes:
    """A plugin of pytest: test → outcome."""

    def __init__(self):
        self.of = {}

    def pytest_runtest_logreport(self, report):
        test = report.nodeid.partition("cuda_tests/")[2]
        if report.failed:
            self.of[test] = f"failed in {report.when}: {said(report.longreprtext)}"
        elif report.when == "call" or report.skipped:
            self.of.setdefault(test, report.outcome)


def said(text):
    """The error that the test ended with: its type, and CUDA's code."""
    last = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or [""]
    code = re.search(r"\b(CUDA_ERROR_\w+|cudaError\w+|CU[A-Z]+_STATUS_\w+)", text)
    return re.match(r"[\w.]*", last[0])[0] + (f" {code[0]}" if code else "")


def main():
    os.chdir(FOLDER)
    outcomes = Outcomes()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere
        pytest.main(["-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", os.devnull, "--rootdir", str(FOLDER),
                     "-k", f"not ({LEFT_OUT})", *(f"cupy_tests/cuda_tests/{name}" for name in MUST_PASS)],
                    [outcomes])
        sys.stdout = shown
    passed = collections.Counter(test.partition("::")[0].partition("/")[0] for test, outcome in outcomes.of.items()
                                 if outcome == "passed")
    for test, outcome in sorted(outcomes.of.items()):
        print(f"{test}: {outcome}")
    short = [f"{name}: {passed[name]} passed, {least} are expected to" for name, least in MUST_PASS.items()
             if passed[name] < least]
    print("passed:", *(f"{name} {passed[name]}" for name in MUST_PASS))
    raise SystemExit("\n".join(short) or 0)


if __name__ == "__main__":
    main()
