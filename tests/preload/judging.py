# SPDX-License-Identifier: Apache-2.0
"""Judges the outcomes of run-pair's runs: what is wrong with one in itself, and what differs between the two."""

import difflib
import json
import re

ROUTE = re.compile(r"route: (?P<route>\S+) (?P<asked>\S*) version=(?P<version>-?\d+) "
                   r"flags=(?P<flags>\d+) -> (?P<symbol>\S+) \((?P<target>hook|driver)\)")


def judge_run(outcome, expected, when):
    """What is wrong with one run in itself."""
    own = when == "with" and expected.exit_with is not None
    status = expected.exit_with if own else expected.exit
    if outcome.status != status:
        yield f"exit status {outcome.status}, expected {status}"
    if outcome.stderr:
        yield f"stderr is not empty:\n{outcome.stderr}"
    # Invalid frees are what some programs are about; a race, a stray access, or another order than the
    # driver's own is nobody's intention.
    for finding in expected.finds:
        if when == "with" and f"simcuda: {finding}" not in outcome.races:
            yield f"the watcher does not find: {finding}"
    found = re.findall(r"^simcuda: (?:race|invalid access|order).*\n(?:  .*\n)*", outcome.races, re.MULTILINE)
    if not expected.finds and found:
        yield f"the watcher found:\n{''.join(found)[:4000]}"
    lines = outcome.stdout.splitlines()
    yield from (f"does not print: {line}" for line in expected.prints if line not in lines)
    for call in expected.calls:
        if call.when != when:
            continue
        seen = sum(outcome.calls.values()) if call.symbol == "*" else outcome.calls[call.symbol]
        good = {"=": seen == call.count, "<=": seen <= call.count, ">=": seen >= call.count}
        if not good[call.relation]:
            yield f"{call.symbol}: {seen} calls, expected {call.relation} {call.count}"
    for values in expected.values:
        if values.when == when:
            pattern = rf"^{values.symbol} .*?\b{values.argument}=(\S+)"
            seen = re.findall(pattern, outcome.trace, re.MULTILINE)
            if seen != values.wanted:
                yield f"{values.symbol}: {values.argument} was {seen}, expected {values.wanted}"
    if when == "with":
        yield from (f"does not log: {text}\n{outcome.log}" for text in expected.logs
                    if text not in outcome.log)


def judge_lookups(log, expected, exported):
    """Every look-up of a function the object exports must have been answered with the hook."""
    routes = [match for match in map(ROUTE.search, log.splitlines()) if match]
    for route in routes:
        want = "hook" if route["symbol"] in exported else "driver"
        if route["target"] != want:
            yield f"look-up went to the {route['target']}, not to the {want}: {route[0]}"
    hooked = {(route["asked"], route["symbol"]) for route in routes if route["target"] == "hook"}
    for asked, symbol in expected.lookup:
        if (asked, symbol) not in hooked:
            yield f"no look-up of {asked} led to the hook of {symbol}, of {len(routes)} look-ups"


def judge_report(bare, pooled, expected):
    """What the report says of calls is what the traces of both runs say."""
    try:
        devices = json.loads(pooled.report)["devices"]
    except (ValueError, KeyError) as error:
        yield f"no report: {error}\n{pooled.report}"
        return
    live = sum(device["live_bytes"] for device in devices)
    if expected.leaves is not None and live != expected.leaves:
        yield f"live at exit {live} bytes, expected {expected.leaves}"
    if not expected.report:
        return
    for field, calls in (("allocations", bare.calls["cuMemAlloc_v2"]),
                         ("driver_calls_without", alloc_and_free_calls(bare)),
                         ("driver_calls", alloc_and_free_calls(pooled) + given_back_in_stream_order(pooled))):
        said = sum(device[field] for device in devices)
        if said != calls:
            yield f"report says {field} {said}, the trace {calls}"
    scratch = [device["scratch"] for device in devices if "scratch" in device]
    asked, given = (outcome.calls["cuMemAllocAsync"] for outcome in (bare, pooled))
    for field, calls in (("hits", asked - given), ("misses", given)):
        said = sum(device[field] for device in scratch)
        if scratch and said != calls:
            yield f"report says scratch {field} {said}, the traces {calls}"


def judge_reported(pooled, reported):
    """Single values of the report; `devices.0.live_bytes` names one."""
    for path, wanted in reported:
        try:
            said = json.loads(pooled.report)
            for name in path.split("."):
                said = said[int(name) if isinstance(said, list) else name]
        except (ValueError, KeyError, IndexError) as error:
            yield f"the report has no {path}: {error}\n{pooled.report}"
            continue
        if said != wanted:
            yield f"the report says {path} {said}, expected {wanted}"


def alloc_and_free_calls(outcome):
    return outcome.calls["cuMemAlloc_v2"] + outcome.calls["cuMemFree_v2"]


def given_back_in_stream_order(outcome):
    """How often cuMemFreeAsync freed memory of cuMemAlloc: so Cistern gives memory back beside unfinished work."""
    plain, count = set(), 0
    for symbol, address in re.findall(r"^(cuMemAlloc_v2|cuMemFree_v2|cuMemFreeAsync) dptr=(\S+)", outcome.trace, re.MULTILINE):
        if symbol == "cuMemAlloc_v2":
            plain.add(address)
        else:
            count += symbol == "cuMemFreeAsync" and address in plain
            plain.discard(address)
    return count


def judge_pair(bare, pooled, expected):
    for line in expected.differs:
        if line not in pooled.stdout.splitlines() or line in bare.stdout.splitlines():
            yield f"not printed with Cistern alone: {line}\n{pooled.stdout}"
    if bare.stdout != pooled.stdout and not expected.differs and not expected.own_output:
        yield "stdout differs:\n" + "\n".join(difflib.unified_diff(
            bare.stdout.splitlines(), pooled.stdout.splitlines(), "without", "with", lineterm=""))
    if bare.status != pooled.status and expected.exit_with is None:
        yield f"exit status {bare.status} without, {pooled.status} with"


def judge(bare, pooled, expected, exports):
    """All findings. `exports()`: the functions that the object exports."""
    findings = [f"without: {text}" for text in judge_run(bare, expected, "without")]
    findings += [f"with: {text}" for text in judge_run(pooled, expected, "with")]
    findings += judge_pair(bare, pooled, expected)
    if expected.report or expected.leaves is not None:
        findings += judge_report(bare, pooled, expected)
    findings += judge_reported(pooled, expected.reports)
    if expected.lookup:
        findings += judge_lookups(pooled.log, expected, exports())
    return findings
