# SPDX-License-Identifier: Apache-2.0
"""Reading the object for the rules beside this file, one rule a file.

The object is loaded into programs that know nothing of it, so what it exports, needs and runs at
load time is part of its contract. Each rule is a function that yields its findings; its docstring
is its meaning. BUILD_DIR names the build whose object is read. Objects built with sanitizers need
their runtimes and are not what anybody installs: the rules are skipped for them (status 77).
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(obj):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", obj))


def dynamic_symbols(obj, which):
    """(name, version or None) of the dynamic symbols that are --defined-only or --undefined-only."""
    symbols = []
    for line in output("nm", "-D", which, obj).splitlines():
        name, _, version = line.split()[-1].partition("@")
        symbols.append((name, version.lstrip("@") or None))
    return symbols


def check(rule):
    """Runs one rule on the object of BUILD_DIR and ends the process with its verdict."""
    obj = str(pathlib.Path(os.environ["BUILD_DIR"]) / "libcistern-device.so")
    if any(re.match(r"lib(a|t|ub)san\.so", library) for library in needed(obj)):
        print(f"skipped: {obj} is built with a sanitizer")
        sys.exit(77)
    print(rule.__doc__)
    findings = list(rule(obj))
    for finding in findings:
        print(f"{obj}: {finding}")
    sys.exit(1 if findings else 0)
