#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function of the toolkit's cuda.h that has to do with memory, or with work, is hooked or on the pass list.

So is every other function that the toolkit's headers declare: the object takes one that stands in neither for unknown,
and a program that calls it is served by the driver from then on (shim/entry/unknown.h).
Somebody has decided for each function of CUDA 13.0 what it means for a pool; one without a decision makes this fail.
Functions of a newer toolkit are named, and the test is skipped: their work is not seen (shim/LIMITS.md). Of those that are hooked and hand work to the device, or may wait for the host, touch memory or need some, each has to
say so in its row of shim/forwarded.def, unless it is on the list of those that do so by hand.
The exact names come from the header in the folder CUDA_INCLUDE: with __CUDA_API_VERSION_INTERNAL it
declares every version and _ptsz variant by its own name. What an older one lacks, shim/toolkit/cuda.h declares.
"""

import os
import pathlib
import re
import subprocess
import sys

import hook_tables

DECIDED = 13000  # the CUDA version whose functions are all hooked or on the pass list
ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIM = ROOT / "shim"
MEMORY_RELATED = re.compile(
    r"Mem|Array|Pool|Ctx|Capture|Ipc|Pointer|ProcAddress|ExportTable|Multicast|Address|"
    r"Global|Managed|Synchronize|Event(Create|Destroy|Record|Query)|"
    r"Stream(Create|Destroy|Query|Wait)|Graphics(Map|Unmap)|^cuInit$|Checkpoint|"
    r"^cuLaunch|^cuGraph|Module|Library|^cuKernel|^cuFunc|^cuOccupancyMaxActiveBlocks|Limit|"
    r"Async|AddCallback|^cu(Import|Destroy|Signal|Wait)ExternalSemaphore|Value(32|64)"
)

# Names that say what a function does: it has this trait.
TRAITS = {
    "kSubmits": re.compile(
        r"^cuLaunch|^cuGraph(Launch|Upload)|^cuMem(cpy|set|Prefetch|Discard)|Async(_v\d+)?(_ptsz)?$|"
        r"^cuStream(AddCallback|BatchMemOp|AttachMem|Wait|Write)|CtxWaitEvent|^cuGraphics(Unm|M)ap"),
    "kMayWaitForHost": re.compile(r"HostFunc|AddCallback|WaitValue|^cuStreamBatchMemOp|^cuWaitExternal"),
    "kTouches": re.compile(r"^cuMem(cpy|set|BatchDecompress)|^cuGraphLaunch|^cuStream(BatchMemOp|WaitValue|WriteValue)"),
    "kTakesMemory": re.compile(
        r"^cu(Module|Library)Load|^cuLaunch(?!HostFunc)|^cuGraph(Launch|Upload)|^cuFuncLoad|"
        r"(Kernel|Module|Library)Get(Function|Module|Global|Kernel)(_v\d+)?$|SetLimit|^cuGreenCtx(Stream)?Create"),
    "kEditsGraph": re.compile(r"^cuGraph(Add)?(Kernel|Memcpy|Memset|BatchMemOp)?Node(SetParams)?(_v\d+)?$"),
    "kLaunchesGraph": re.compile(r"^cuGraphLaunch"),
    "kWaitsForDevice": re.compile(r"^cuMemcpy(DtoH_v2)?(_ptds)?$"),
}
# Those with a hook of their own.
BY_HAND = {
    "kSubmits": re.compile(r"^cuMem(Alloc|AllocFromPool|Free)Async"),  # as short as the work before it
    "kEditsGraph": re.compile(r"^cuGraphAddNode"),  # hooks/graph.cc
}


def declared(include_dir):
    """The header's version and the names in it."""
    header = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-D__CUDA_API_VERSION_INTERNAL", f"-I{ROOT / 'shim' / 'toolkit'}", f"-I{include_dir}", "-"],
        input="#include <cuda.h>\nversion CUDA_VERSION\n", check=True, capture_output=True, text=True).stdout
    return int(re.search(r"^version (\d+)$", header, re.M)[1]), functions_in(header)


def functions_in(header):
    return set(re.findall(r"CUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w*)\s*\(", header))


def declared_beside(include_dir):
    """Those of the headers for profilers and graphics on Linux, which some packages lack."""
    headers = [pathlib.Path(include_dir.split(";")[0], f"cuda{name}.h") for name in ("Profiler", "GL", "EGL", "VDPAU")]
    texts = [header.read_text(encoding="utf-8") for header in headers if header.exists()]
    return {name for text in texts for name in functions_in(text) if "WGL" not in name}


def passed():
    """Lines `symbol reason`; a symbol without a reason is a finding of its own."""
    table = (SHIM / "pass-list.txt").read_text(encoding="utf-8").splitlines()
    lines = [line.split(maxsplit=1) for line in table if line.strip() and line[0] != "#"]
    return {line[0]: line[1].strip() if len(line) > 1 else "" for line in lines}


def out_of_place():
    """In each table, rows that do not come after the one before them."""
    for table in sorted(SHIM.glob("*.def")):
        symbols = re.findall(r"^CISTERN_\w+\(\s*(\w+),", table.read_text(encoding="utf-8"), re.MULTILINE)
        for before, symbol in zip(symbols, symbols[1:]):
            if before > symbol:
                yield f"{symbol}: not in its alphabetical place in {table.name}, after {before}"


def traits_missing(names):
    forwarded = hook_tables.forwarded()
    for name in sorted(names):
        for trait, pattern in TRAITS.items():
            by_hand = trait in BY_HAND and BY_HAND[trait].search(name)
            if pattern.search(name) and not by_hand and trait not in forwarded.get(name, ()):
                yield f"{name}: by its name it is {trait}, and its row of shim/forwarded.def does not say so"


def main():
    version, names = declared(os.environ["CUDA_INCLUDE"])
    hooks, passes = hook_tables.hooks(), passed()
    related = {name for name in names if MEMORY_RELATED.search(name)}
    new = (names | declared_beside(os.environ["CUDA_INCLUDE"])) - set(hooks) - set(passes)
    newer = sorted(new) if version > DECIDED else []
    related -= set(newer)
    findings = [f"{name}: new in this toolkit; hook it in shim/hooks.def, or write in "
                "shim/pass-list.txt why it may pass" for name in sorted(new - set(newer))]
    findings += out_of_place()
    findings += traits_missing(set(hooks) | (related - set(passes)))
    findings += [f"{name}: hooked, and not in this toolkit's cuda.h" for name in sorted(set(hooks) - names)]
    findings += [f"{name}: hooked and on the pass list" for name in sorted(set(hooks) & set(passes))]
    findings += [f"{name}: hooked twice" for name in sorted(set(hooks)) if hooks.count(name) > 1]
    findings += [f"{name}: on the pass list without a reason" for name, why in passes.items() if not why]
    if "cuGetExportTable" in hooks:
        findings.append("cuGetExportTable: the runtime checks the driver's tables; never hook it")
    if len(related) < 200:
        findings.append(f"only {len(related)} functions were found in cuda.h: the header was not understood")
    print("\n".join(findings))
    if newer:
        print(f"skipped: CUDA {version} is newer than {DECIDED}, and nobody has decided on {' '.join(newer)}")
    print(f"{len(related)} memory-related of {len(names)} functions, {len(hooks)} hooks, {len(passes)} passed")
    sys.exit(1 if findings else 77 if newer else 0)


if __name__ == "__main__":
    main()
