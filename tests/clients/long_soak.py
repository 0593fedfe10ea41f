#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All clients with the programs that take long, as `make soak` runs them."""

import os
import pathlib
import subprocess
import sys

if __name__ == "__main__":
    run = pathlib.Path(__file__).resolve().parent / "run"
    sys.exit(subprocess.run([run, os.environ["BUILD_DIR"], "--long"], check=False).returncode)
