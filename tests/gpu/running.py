# SPDX-License-Identifier: Apache-2.0
"""Runs one program of the check on a GPU, without or with Cistern, and says whether two runs are alike."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 60
SKIPPED = 77  # the status of a program whose library or framework is not here


def run(command, preload=None, settings=(), timeout_s=None, report=False):
    """In a new directory, which goes with what the program leaves there. `report`: Cistern's, too."""
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        reported = pathlib.Path(folder, "cistern-report.json")
        if preload:
            env |= {"CISTERN_LOG": "error"}  # a warning says what this machine lacks, and is no difference
            env |= dict(setting.split("=", 1) for setting in settings) | {"LD_PRELOAD": preload}
            if report:
                env |= {"CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": str(reported)}
        start = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder,
                                  timeout=timeout_s or TIMEOUT_S, check=False, errors="replace")
            status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            status, out, err = "timeout", "", ""
        result = {"status": status, "stdout": out, "stderr": err,
                  "seconds": round(time.monotonic() - start, 3)}
        if report:
            result["report"] = json.loads(reported.read_text("utf-8")) if reported.exists() else {}
        return result


def alike(one, other):
    return all(one[key] == other[key] for key in ("status", "stdout", "stderr"))


def differs(row):
    return not row.get("same", True)


def names(program):
    """The names that a program of this folder knows, each for a run of its own."""
    done = run([program])
    if done["status"] != 0 or not done["stdout"]:
        sys.exit(f"gpu-check: error: {program} does not start, status {done['status']}: {done['stderr']}")
    return done["stdout"].split()


def figures(stdout):
    """The lines of JSON that a program prints, as one object."""
    told = {}
    for line in stdout.splitlines():
        if line.startswith("{"):
            told |= json.loads(line)
    return told
