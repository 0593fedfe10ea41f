# SPDX-License-Identifier: Apache-2.0
"""The tests of IPC handles in numba-cuda's own suite, as suite.py runs the others."""

# client: {"limit_s": 300}

import suite
from numba.cuda.tests.cudapy import test_ipc

PATIENCE_S = 60  # in place of 4, in which a busy machine starts no process

if __name__ == "__main__":
    test_ipc.FUTURE_TIMEOUT = PATIENCE_S
    suite.judge({"cudapy.test_ipc": 5})
