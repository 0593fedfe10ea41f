# SPDX-License-Identifier: Apache-2.0
"""A client's virtual environment inside the build folder, with the runtime of the simulated CUDA in it.

NVIDIA's libcudart.so speaks with its driver through tables that nothing documents, so on the simulated
driver each one that a wheel brought is replaced by a link to the simulated runtime of the same version.
A link in its place and not LD_LIBRARY_PATH, because the libraries of many wheels have an RPATH, which
goes first. What is dlopened by name (libcuda.so.1, libnvidia-ml.so.1) is in no wheel, and found through
LD_LIBRARY_PATH. What else a client needs, such as its own tests from the source package, its prepare.py
adds, in the folder `prepared` of the environment.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

STALL_S = 20  # without an answer of the package index
LIMIT_S = 3600  # of one client's installation
STAMP = "requirements.installed"
PREPARED = "prepared"


class Missing(Exception):
    """Why a client cannot be had, in a line."""


def free_mb(folder):
    return shutil.disk_usage(folder).free // 2**20


def reason(complaints):
    """The line of pip's complaints that says most; where the index does not answer, that."""
    if re.search(r"^WARNING: Retrying ", complaints, re.MULTILINE):
        return "the package index does not answer"
    lines = [line for line in complaints.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip failed"])[0].removeprefix("ERROR: ")[:200]


def run(command):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              timeout=LIMIT_S, env=env)
    except subprocess.TimeoutExpired as late:
        raise Missing(f"not installed after {LIMIT_S} s") from late
    if done.returncode != 0:
        raise Missing(reason(done.stderr + done.stdout))


def replace_runtimes(folder, sim):
    """Every shared CUDA runtime in the environment is ours then, of the same major version."""
    for library in sorted(folder.glob("lib/python*/site-packages/**/libcudart.so.*")):
        ours = sim / re.match(r"libcudart\.so\.\d+", library.name)[0]
        if not ours.exists():
            raise Missing(f"it brings {library.name}, and {sim} has no runtime of that version")
        if library.is_symlink() and pathlib.Path(os.readlink(library)) == ours:
            continue
        library.unlink()
        library.symlink_to(ours)


def stamp_of(requirements):
    """What an environment was made from."""
    prepare = requirements.with_name("prepare.py")
    return requirements.read_bytes() + (prepare.read_bytes() if prepare.exists() else b"")


def install(folder, requirements, sim, needs_mb):
    shutil.rmtree(folder, ignore_errors=True)
    if free_mb(folder.parent) < needs_mb:
        raise Missing(f"it needs {needs_mb} MiB in {folder.parent}, which has {free_mb(folder.parent)}")
    try:
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--timeout", str(STALL_S),
             "--retries", "1", "install", "--quiet", "--no-cache-dir", "--only-binary=:all:",
             "--requirement", str(requirements)])
        if (prepare := requirements.with_name("prepare.py")).exists():
            run([str(folder / "bin/python"), str(prepare), str(folder / PREPARED), str(sim)])
    except Missing:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / STAMP).write_bytes(stamp_of(requirements))


def obtain(folder, requirements, sim, needs_mb):
    """The environment's Python. Made anew only where it would come from something else than the last time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # runs side by side install once
        stamp = folder / STAMP
        if not stamp.exists() or stamp.read_bytes() != stamp_of(requirements):
            install(folder, requirements, sim, needs_mb)
        replace_runtimes(folder, sim)
    return folder / "bin/python"
