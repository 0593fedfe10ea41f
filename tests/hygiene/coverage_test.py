#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every memory-related function of the toolkit's cuda.h is hooked or on the written pass list.

A toolkit that brings a new one makes this fail until somebody has decided what it means for a pool.
The exact names come from the header in the folder CUDA_INCLUDE: with __CUDA_API_VERSION_INTERNAL it
declares every version and _ptsz variant by its own name.
"""

import os
import pathlib
import re
import subprocess
import sys

SHIM = pathlib.Path(__file__).resolve().parents[2] / "shim"
MEMORY_RELATED = re.compile(
    r"Mem|Array|Pool|Ctx|Capture|Ipc|Pointer|ProcAddress|ExportTable|Multicast|Address|"
    r"Global|Managed|Synchronize|Event(Create|Destroy|Record|Query)|"
    r"Stream(Create|Destroy|Query|Wait)|Graphics(Map|Unmap)|^cuInit$|Checkpoint"
)


def declared(include_dir):
    header = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include_dir}",
         os.path.join(include_dir, "cuda.h")],
        check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"CUresult\s+(cu[A-Z]\w*)\s*\(", header))


def hooked():
    table = (SHIM / "hooks.def").read_text(encoding="utf-8")
    return re.findall(r"^CISTERN_HOOK\w*\(\s*(\w+)", table, re.MULTILINE)


def passed():
    """Lines `symbol reason`; a symbol without a reason is a finding of its own."""
    table = (SHIM / "pass-list.txt").read_text(encoding="utf-8").splitlines()
    lines = [line.split(maxsplit=1) for line in table if line.strip() and line[0] != "#"]
    return {line[0]: line[1].strip() if len(line) > 1 else "" for line in lines}


def main():
    names, hooks, passes = declared(os.environ["CUDA_INCLUDE"]), hooked(), passed()
    related = {name for name in names if MEMORY_RELATED.search(name)}
    findings = [f"{name}: new in this toolkit; hook it in shim/hooks.def, or write in "
                "shim/pass-list.txt why it may pass" for name in sorted(related - set(hooks) - set(passes))]
    findings += [f"{name}: hooked and on the pass list" for name in sorted(set(hooks) & set(passes))]
    findings += [f"{name}: hooked twice" for name in sorted(set(hooks)) if hooks.count(name) > 1]
    findings += [f"{name}: on the pass list without a reason" for name, why in passes.items() if not why]
    if "cuGetExportTable" in hooks:
        findings.append("cuGetExportTable: the runtime checks the driver's tables; never hook it")
    if len(related) < 200:
        findings.append(f"only {len(related)} functions were found in cuda.h: the header was not understood")
    print("\n".join(findings))
    print(f"{len(related)} memory-related of {len(names)} functions, {len(hooks)} hooks, {len(passes)} passed")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
