# SPDX-License-Identifier: Apache-2.0
"""The parts of the check on a GPU that run programs of this folder. Each returns what goes into the result.

Facts and figures are told, and judge nothing. A row with "same": false fails the check.
"""

import concurrent.futures
import functools
import importlib.util
import json
import os
import pathlib
import sys
import time

import launches
import workloads
from running import SKIPPED, alike, figures, names, run

BESIDE = 4  # programs at a time, where no time is measured
FACTS = ("gpu_facts_memory", "gpu_facts_waits", "gpu_facts_calls", "gpu_facts_ends")


def driver_facts(programs, without=()):
    """What the driver does, without Cistern. `without`: groups that are left out."""
    told, failed = {}, {}
    for program in FACTS:
        for group in names(programs / program):
            if group in without:
                continue
            done = run([programs / program, group])
            told |= figures(done["stdout"])
            if done["status"] != 0:
                failed[group] = done
                print(f"facts of {group} end early, status {done['status']}: {done['stderr'].strip()}")
    for name, value in told.items():
        print(f"  {name}: {value}")
    return told | ({"failed": failed} if failed else {})


def time_pairs(program, preload, *largest):
    runs = [run([program, *largest], which) for which in (None, preload)]
    if any(done["status"] != 0 for done in runs):
        print(f"FAIL {program}: status {' and '.join(str(done['status']) for done in runs)}")
        return [{"program": "gpu_pairs", "same": False, "bare": runs[0], "cistern": runs[1]}]
    rows = []
    for a, b in zip(*(json.loads(done["stdout"]) for done in runs)):
        rows.append({"bytes": a.pop("bytes"), "driver": a, "cistern": b,
                     "idle_ratio": round(a["idle_ns"] / b["idle_ns"], 1),
                     "in_flight_ratio": round(a["in_flight_ns"] / b["in_flight_ns"], 1)})
        print(f"{b.pop('bytes'):>12} bytes, ns without and with: "
              + ", ".join(f"{what[:-3]} {a[what]:.0f} {b[what]:.0f}" for what in a))
    return rows


def compare_named(program, preload, settings=()):
    """Each run that the program names, without and with Cistern."""
    def compare(name):
        bare, pooled = run([program, name]), run([program, name], preload)
        row = {"program": f"{program.name} {name}", "same": alike(bare, pooled), "bare": bare,
               "cistern": pooled}
        if settings:
            row["with " + " ".join(settings)] = run([program, name], preload, settings)["stdout"]
        return row

    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        rows = list(pool.map(compare, names(program)))
    for row in rows:
        print(f"{'ok  ' if row['same'] else 'FAIL'} {row['program']}: {row['bare']['stdout'].strip()} / "
              f"{row['cistern']['stdout'].strip()}")
    return rows


def relies(programs, preload):
    return compare_named(programs / "gpu_relies", preload, ("CISTERN_FREE_SYNC=false",))


def endings(programs, preload):
    return compare_named(programs / "gpu_endings", preload)


def reported(done):
    return {key: done["report"].get(key) for key in
            ("frees", "careful", "unseen_work", "all_visible", "unknown_functions")}


def why_frees_are_careful(told, operations):
    """The reason in a report, if each free behind an operation was. None: some may not have been."""
    if told["careful"]:
        return told["careful"]  # the driver itself serves and frees all memory
    waits = (told["frees"] or {}).get("waited_for_all", {}).get("careful", {}).get("waits", 0)
    return told["unseen_work"] if told["unseen_work"] and waits >= operations else None


def seen(command, preload):
    """Whether Cistern counts each operation of a library. If not, whether it notices that, and frees are careful."""
    runs = [run([*command, mode], preload, report=True) for mode in ("idle", "busy")]
    idle, busy = map(reported, runs)
    row = {"operations": 0, "unseen": 0, "idle": idle, "busy": busy}
    if any(done["status"] != 0 for done in runs):
        return row | {"same": False, "runs": runs}
    row["operations"] = operations = int(runs[0]["stdout"].split()[-1])
    at_once = [told["frees"]["at_once"] if told["frees"] else 0 for told in (idle, busy)]
    row["unseen"] = operations - (at_once[0] - at_once[1])
    reasons = [why_frees_are_careful(told, operations) for told in (idle, busy)]
    if row["unseen"] != 0 and all(reasons):
        row["noticed"] = reasons[1]
    return row | {"same": row["unseen"] == 0 or "noticed" in row}


def library(command, preload):
    """One library: its work comes behind what a free had to wait for, and all of it is counted or else noticed."""
    row = {"program": command[-1]}
    bare = run([*command, "order"])
    if bare["status"] != 0:
        reason = (bare["stdout"].strip() or bare["stderr"].strip()).replace("\n", "; ")
        print(f"skip {row['program']}: {reason}")
        return row | {"left_out": "not here" if bare["status"] == SKIPPED else "fails without Cistern",
                      "bare": bare}
    pooled = run([*command, "order"], preload)
    row |= {"bare": bare, "cistern": pooled, "seen": seen(command, preload)}
    told = row["seen"]
    row["same"] = bare["stdout"] == pooled["stdout"] and pooled["status"] == 0 and told["same"]
    print(f"{'ok  ' if row['same'] else 'FAIL'} {row['program']}: "
          f"{told['unseen']} of {told['operations']} operations unseen"
          + (f", so frees wait: {told['noticed']}" if "noticed" in told else ""))
    return row


def python_libraries():
    """Folders of NVIDIA's libraries that came with Python's packages, behind those that are looked in anyway."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else ()
    folders = [folder for place in places for folder in sorted(pathlib.Path(place).glob("*/lib"))]
    return ":".join(filter(None, (os.environ.get("LD_LIBRARY_PATH"), *map(str, folders))))


def libraries(programs, preload):
    program = programs / "gpu_libraries"
    commands = [("env", f"LD_LIBRARY_PATH={python_libraries()}", program, name) for name in names(program)]
    commands += [(sys.executable, launches.__file__, name) for name in launches.FRAMEWORKS]
    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        return list(pool.map(functools.partial(library, preload=preload), commands))


def kept(programs, preload):
    """What a step takes and a loop leaves behind, without and with Cistern: blocks of 1 GiB, and pools of the driver."""
    told = {}
    for kind, words in (("", ()), ("_pool_1_mib", ("pool", "1048576")), ("_pool_256_mib", ("pool", "268435456"))):
        for name, which in (("driver", None), ("cistern", preload)):
            done = run([programs / "gpu_kept", *words], which)
            told[name + kind] = figures(done["stdout"]) | ({} if done["status"] == 0 else {"failed": done})
            print(f"after a loop, {name}{kind}: {told[name + kind]}")
    return told


def frameworks(preload, until):
    """The same work by PyTorch, CuPy and Numba, where they are installed."""
    rows = []
    for name, settings in workloads.NAMES.items():
        if time.monotonic() > until:
            break
        command = [sys.executable, workloads.__file__, name]
        bare = run(command)
        if bare["status"] == SKIPPED:
            print(f"skip {name}: {bare['stdout'].strip()}")
            rows.append({"program": name, "left_out": "not here"})
            continue
        pooled = run(command, preload, settings, report=True)
        report = pooled.pop("report")
        answers = [done["stdout"].partition(";")[2] for done in (bare, pooled)]
        same = answers[0] == answers[1] and bare["status"] == pooled["status"]
        rows.append({"program": name, "settings": settings, "same": same, "bare": bare,
                     "cistern": pooled, "frees": report.get("frees"), "careful": report.get("careful")})
        print(f"{'ok  ' if same else 'FAIL'} {name}: status {bare['status']}, "
              f"{bare['stdout'].strip()} / {pooled['stdout'].strip()}")
    return rows
