#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

import elf


def silence(obj):
    """Programs without CUDA give the same output and status under the preload, and nothing more."""
    programs = [
        ["true"], ["false"], ["bash", "-c", "echo out; echo err >&2; exit 3"],
        ["/usr/bin/env", "python3", "-c", "import ctypes, threading; print(sum(range(10)))"],
        ["cmake", "--version"], ["sh", "-c", "kill -TERM $$"],
    ]
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("CISTERN_", "FLAGS_", "GE_", "LD_"))}
    for program in programs:
        runs = [subprocess.run(program, capture_output=True, env=env, check=False)
                for env in (clean, clean | {"LD_PRELOAD": obj})]
        bare, preloaded = [(run.returncode, run.stdout, run.stderr) for run in runs]
        if bare != preloaded:
            yield f"{' '.join(program)}: {bare} without, {preloaded} with the preload"


elf.check(silence)
