#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches NVIDIA's own driver libraries and CUDA runtimes, for tests on a machine without a GPU.

Usage: fetch.py FOLDER
       fetch.py --tell FOLDER

The drivers are packages of the non-free part of Debian, from wherever this machine has its own packages from,
by an apt configuration of their own; the runtimes are Python packages, fetched by pip. They are unpacked into
FOLDER, and nothing is installed. What is there is not fetched again. Prints what cannot be had, and why;
--tell fetches nothing and prints what that means for the tests that were there to run.
"""

import concurrent.futures
import fcntl
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

DRIVERS = ("libcuda1", "libnvidia-tesla-470-cuda1")
RUNTIMES = {"cudart-11": "nvidia-cuda-runtime-cu11==11.8.89", "cudart-12": "nvidia-cuda-runtime-cu12==12.9.79",
            "cudart-13": "nvidia-cuda-runtime==13.5.37"}
NEWEST = {"toolkit": "nvidia-cuda-runtime"}  # the newest headers there are, for tests/hygiene/coverage_test.py
TIME_LIMIT_S = 50  # of all fetching
STALL_S = 10  # without an answer of the other side
TRY_AGAIN_S = 15 * 60  # what could not be had is not tried again before, but by this script itself


class Missing(Exception):
    """Why something cannot be had, in a line."""


# What else may go wrong with something that was fetched in part, or with a full disk.
BROKEN = (Missing, OSError, ValueError, zipfile.BadZipFile)


# What apt and pip complain in where nobody answers, and in a line of their own only name what they then lack.
UNANSWERED = re.compile(r"^W: (Failed to fetch .*)|^WARNING: (Retrying) ", re.MULTILINE)


def reason(complaints):
    unanswered = UNANSWERED.search(complaints)
    if unanswered is None:
        return complaints.strip().rpartition("\n")[2][:200]
    return (unanswered[1] or "the package index does not answer")[:200]


def in_a_line(why):
    return str(why).partition("\n")[0] or type(why).__name__


def run(*command, until, **more):
    """What it wrote to stdout and stderr."""
    if time.monotonic() > until:
        raise Missing(f"not done after {TIME_LIMIT_S} s")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              timeout=max(1, until - time.monotonic()), **more)
    except FileNotFoundError as error:
        raise Missing(f"no {command[0]} here") from error
    except subprocess.TimeoutExpired as late:
        raise Missing(f"not done after {TIME_LIMIT_S} s: {shlex.join(command[:2])}") from late
    if done.returncode != 0:
        raise Missing(reason(done.stderr) or f"{shlex.join(command[:2])}: exit status {done.returncode}")
    return done.stdout, done.stderr


def debian_sources(until):
    """Lines of a sources list: where this machine has Debian's main part from, with the non-free part in its place."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    codename = release.get("VERSION_CODENAME")
    if release.get("ID") != "debian" or codename is None:
        raise Missing("this is not Debian, whose packages they are")
    known = {codename + suffix for suffix in ("", "-updates", "-security", "/updates")}
    targets, _ = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                     "Identifier: Packages", until=until)
    entries = {tuple(line.split()) for line in targets.splitlines()}
    lines = [f"deb {uri} {suite} non-free" for uri, suite, part in sorted(entries)
             if suite in known and part == "main"]
    if not lines:
        raise Missing("this machine has no source of Debian's packages")
    return lines


def private_apt(folder, until):
    """The environment of an apt with lists and all else in this folder, and with this machine's ways to fetch."""
    acquire = [line for line in run("apt-config", "dump", until=until)[0].splitlines()
               if line.startswith("Acquire::") and not line.endswith(' "";')
               and not line.startswith(("Acquire::Languages", "Acquire::IndexTargets"))]
    for needed in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "etc/sources.list").write_text("\n".join(debian_sources(until)) + "\n", encoding="utf-8")
    (folder / "apt.conf").write_text("\n".join([
        *acquire, f'Dir::Etc "{folder}/etc";', 'Dir::Etc::trusted "/etc/apt/trusted.gpg";',
        'Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";', 'Dir::Etc::netrc "/etc/apt/auth.conf";',
        'Dir::Etc::netrcparts "/etc/apt/auth.conf.d";', f'Dir::State "{folder}/state";',
        f'Dir::State::status "{folder}/status";', f'Dir::Cache "{folder}/cache";', 'APT::Sandbox::User "";',
        'Acquire::Languages "none";', 'Acquire::Retries "1";', f'Acquire::http::Timeout "{STALL_S}";',
        f'Acquire::https::Timeout "{STALL_S}";', ""]), encoding="utf-8")
    return os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}


def fetch_drivers(wanted, folder, scratch, until):
    """What is missing, by package."""
    try:
        env = private_apt(scratch / "apt", until)
        # A source that does not answer is no failure yet: another may have the packages.
        complaints = run("apt-get", "-q", "update", until=until, env=env)[1]
    except BROKEN as why:
        return dict.fromkeys(wanted, in_a_line(why))
    missing = {}
    for package in wanted:
        try:
            run("apt-get", "-q", "download", package, until=until, env=env, cwd=scratch)
            [archive] = scratch.glob(f"{package}_*.deb")
            run("dpkg", "-x", str(archive), str(scratch / package), until=until)
            (scratch / package).rename(folder / package)
        except BROKEN as why:
            missing[package] = reason(complaints) if UNANSWERED.search(complaints) else in_a_line(why)
    return missing


def fetch_runtimes(wanted, folder, scratch, until):
    """What is missing, by name."""
    def fetch(name):
        wheels = scratch / f"{name}-wheels"
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--timeout", str(STALL_S), "--retries", "1",
            "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(wheels),
            (RUNTIMES | NEWEST)[name], until=until)
        [wheel] = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch / name)
        (scratch / name).rename(folder / name)

    missing = {}
    for name in wanted:
        try:
            fetch(name)
        except BROKEN as why:
            missing[name] = in_a_line(why)
    return missing


# What drivers' tests need: how it is fetched, and its names.
PARTS = ((fetch_drivers, DRIVERS), (fetch_runtimes, RUNTIMES))


def noted(folder):
    """What could not be had the last time, by name."""
    note = folder / "missing"
    lines = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
    return dict(line.split(": ", 1) for line in lines)


def obtain(folder, anew=False, parts=PARTS):
    """Everything that can be had is in the folder then. The rest by name, each with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "missing"
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side fetch once
        wanted = [name for _, names in parts for name in names if not (folder / name).exists()]
        if note.exists() and not anew and time.time() - note.stat().st_mtime < TRY_AGAIN_S:
            before = noted(folder)
            if set(wanted) <= set(before):
                return {name: before[name] for name in wanted}
        note.unlink(missing_ok=True)
        if not wanted:
            return {}
        until = time.monotonic() + TIME_LIMIT_S
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="fetch-", dir=folder))
        try:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                jobs = [pool.submit(fetch, [name for name in wanted if name in names], folder, scratch, until)
                        for fetch, names in parts]
                missing = {name: why for job in jobs for name, why in job.result().items()}
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if missing:
            note.write_text("".join(f"{name}: {why}\n" for name, why in missing.items()), encoding="utf-8")
        return missing


def tell(folder):
    """What the tests said of themselves (stage.py), and what they had to do without."""
    note = folder / "stage"
    print(f"tests/drivers: {note.read_text(encoding='utf-8') if note.exists() else 'did not run'}")
    for name, why in noted(folder).items():
        print(f"tests/drivers: without {name}: {why}")


def main():
    words = sys.argv[1:]
    if words[:1] == ["--tell"] and len(words) == 2:
        tell(pathlib.Path(words[1]))
        return
    if len(words) != 1:
        sys.exit("usage: fetch.py [--tell] FOLDER")
    missing = obtain(pathlib.Path(words[0]).resolve(), anew=True)
    for name, why in missing.items():
        print(f"{name}: {why}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
