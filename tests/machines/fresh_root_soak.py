#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make demo test` on another machine: one of those that tests/machines/run can make. MACHINE names it; without, each
day has the next one. `make soak`. Skipped where no root can be made."""

import datetime
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MACHINES = ("debian12", "debian13", "debian13-cuda12", "ubuntu2404", "debian12-clang", "debian13-clang")


def main():
    machine = os.environ.get("MACHINE") or MACHINES[datetime.date.today().toordinal() % len(MACHINES)]
    print(f"machine: {machine}", flush=True)
    sys.exit(subprocess.run([HERE / "run", machine], check=False).returncode)


if __name__ == "__main__":
    main()
