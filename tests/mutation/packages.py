# SPDX-License-Identifier: Apache-2.0
"""What the sample of mutants needs from the package index: kept in a folder of its own, nothing is installed."""

import pathlib
import shutil
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "drivers"))

import fetch  # noqa: E402

PACKAGES = ("universalmutator==1.14.1", "pyelftools==0.31")
TIME_LIMIT_S = 60
Missing = fetch.Missing  # they cannot be had; says why


def make_importable(home):
    folder = home / "packages"
    if not folder.exists():
        home.mkdir(parents=True, exist_ok=True)
        part = pathlib.Path(tempfile.mkdtemp(dir=home))
        try:
            fetch.run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "install",
                      "--quiet", "--no-deps", "--target", str(part), *PACKAGES, until=time.monotonic() + TIME_LIMIT_S)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    sys.path.insert(0, str(folder))
