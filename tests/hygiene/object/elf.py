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


def weak_symbols(obj):
    """Names that may stay undefined."""
    lines = output("nm", "-D", "--undefined-only", obj).splitlines()
    return {line.split()[-1] for line in lines if line.split()[0] in "wv"}


def serves_malloc(obj):
    return pathlib.Path(obj).name == "libcistern.so"


def check(rule):
    """Runs one rule on the objects of BUILD_DIR and ends the process with its verdict."""
    build = pathlib.Path(os.environ["BUILD_DIR"])
    objects = [build / "libcistern-device.so", build / "libcistern.so"]
    if any(re.match(r"lib(a|t|ub)san\.so", library) for library in needed(objects[0])):
        print(f"skipped: {objects[0]} is built with a sanitizer")
        sys.exit(77)
    print(rule.__doc__)
    bad = False
    for obj in (str(each) for each in objects if not each.is_symlink()):  # one may be the other
        for finding in rule(obj):
            print(f"{obj}: {finding}")
            bad = True
    sys.exit(1 if bad else 0)
