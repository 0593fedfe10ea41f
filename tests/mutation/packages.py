# SPDX-License-Identifier: Apache-2.0
"""What the sample of mutants needs from the package index: kept in a folder of its own, nothing is installed."""

import shutil
import subprocess
import sys
import tempfile

PACKAGES = ("universalmutator==1.14.1", "pyelftools==0.31")
TIME_LIMIT_S = 120


class Missing(Exception):
    """They cannot be had; says why."""


def make_importable(home):
    folder = home / "packages"
    if not folder.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as part:
            command = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
                       "--retries", "1", "--no-deps", "--target", part, *PACKAGES)
            try:
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIME_LIMIT_S)
            except subprocess.TimeoutExpired as late:
                raise Missing(f"not there after {TIME_LIMIT_S} s") from late
            if done.returncode != 0:
                raise Missing(done.stderr.strip().rpartition("\n")[2])
            shutil.copytree(part, folder, dirs_exist_ok=True)
    sys.path.insert(0, str(folder))
