#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest client under the policies that differ most, as `make test` and CI run it. Skipped where the
package index cannot be reached."""

import os
import pathlib
import subprocess
import sys

SMALLEST = "cuda-core"
POLICIES = ["--policy=default", "--policy=auto_growth", "--policy=mode 3"]
HERE = pathlib.Path(__file__).resolve().parent

if __name__ == "__main__":
    if not (HERE / SMALLEST).exists():
        sys.exit(f"there is no client {SMALLEST}")
    sys.exit(subprocess.run([HERE / "run", os.environ["BUILD_DIR"], SMALLEST, *POLICIES], check=False).returncode)
