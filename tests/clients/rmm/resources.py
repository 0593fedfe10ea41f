# SPDX-License-Identifier: Apache-2.0
"""RMM's resources: cuda, pool, arena, async, managed, fixed, binning, limiting, statistics, tracking, pinned.

The program is resources.cc, which prepare.py has built.
"""

import os
import pathlib
import sys

if __name__ == "__main__":
    program = pathlib.Path(sys.prefix) / "prepared/resources"
    os.execv(program, [program])
