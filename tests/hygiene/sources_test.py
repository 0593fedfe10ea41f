#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How source files open and how long they may be, and what they must not include or call; that the race detector runs
what starts a thread."""

import pathlib
import re
import sys

FOLDERS = ("config", "allocator", "shim", "scripts", "tests", ".ci")
CODE = {".h", ".cc", ".c", ".cu", ".S", ".py", ".sh"}
MAX_LINES = 500
MAX_CMAKE_LINES = 150
THREAD = re.compile(r"std::j?thread|std::async|pthread_create|start_own_thread")
# The headers of glibc 2.38 and later make symbols of these that older systems lack.
RENAMED = re.compile(r"(?<![.\w])(?:ato(?:i|ll?)|strto(?:u?ll?|[iu]max)|\w*scanf)\(")
SPDX = "SPDX-License-Identifier: Apache-2.0"


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                lines = path.read_bytes()[:2]
                if path.suffix in CODE or lines == b"#!":
                    yield path


def of_object(name):
    return name.parts[0] in ("config", "allocator", "shim") and "tool" not in name.parts


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    findings, seen = [], 0
    for path in sources(root):
        seen += 1
        name, lines = path.relative_to(root), path.read_text(encoding="utf-8").splitlines()
        if not any(SPDX in line for line in lines[:3]):
            findings.append(f"{name}: no SPDX line at the top")
        if len(lines) > MAX_LINES:
            findings.append(f"{name}: {len(lines)} lines, {MAX_LINES} are allowed")
        if path.suffix == ".h" and "#pragma once" not in lines:
            findings.append(f"{name}: no #pragma once")
        if str(name) != "tests/catch.h" and any(line.startswith("#include <catch2/") for line in lines):
            findings.append(f"{name}: includes Catch2, whose generations differ; it is to include tests/catch.h")
        if of_object(name) and any(RENAMED.search(line.split("//")[0]) for line in lines):
            findings.append(f"{name}: calls strtol() or one of its like; it is to call os::read_number()")
    cmake = sum(len(path.read_text(encoding="utf-8").splitlines())
                for path in root.rglob("CMakeLists.txt") if "build" not in path.parts)
    if cmake >= MAX_CMAKE_LINES:
        findings.append(f"{cmake} lines of CMake, fewer than {MAX_CMAKE_LINES} are allowed")
    known = (root / "tests" / "sanitizers.cmake").read_text(encoding="utf-8")
    for path in sorted((root / "tests" / "unit").rglob("*.h")):
        if THREAD.search(path.read_text(encoding="utf-8")) and not re.search(rf"\b{path.stem}\b", known):
            findings.append(f"{path.relative_to(root)}: starts a thread, and tests/sanitizers.cmake does not name it")
    if seen == 0:
        findings.append(f"no sources under {root}")
    print("\n".join(findings))
    print(f"{seen} files read")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
