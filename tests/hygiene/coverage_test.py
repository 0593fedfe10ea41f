#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function that CUDA's headers declare of the driver is hooked or on the pass list, with a reason that fits.

Read are the headers of the installed toolkit (CUDA_INCLUDE), of the newest one that the package index has, and a
list of names (cuda_headers.py). Somebody has decided for each function what it means for a pool: one without a
decision makes this fail. Where it comes with a toolkit newer than DECIDED this is skipped, since the object takes
it for unknown (shim/entry/unknown.h), and coverage_soak.py fails. What a function takes tells whether the decision
can be right: what begins a capture is hooked, what is given a stream hands work to it or says why it does not, and
nothing that takes memory, work or a graph is waved through as being about neither. A hooked function that hands
work to the device, may wait for the host, touches memory or needs some has to say so in its row of
shim/forwarded.def, unless it does so by hand.

    coverage_test.py --keep BUILD    writes the list of names anew
"""

import os
import pathlib
import re
import sys

import cuda_headers
import hook_tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIM = ROOT / "shim"
DECIDED = 13050  # the CUDA version whose functions are all hooked or on the pass list
SKIPPED = 77  # as the build tells ctest

# Names that say what a function does: it has this trait.
TRAITS = {
    "kSubmits": re.compile(
        r"^cuLaunch|^cuGraph(Launch|Upload)|^cuMem(cpy|set|Prefetch|Discard)|Async(_v\d+)?(_ptsz)?$|"
        r"^cuStream(AddCallback|BatchMemOp|AttachMem|Wait|Write)|CtxWaitEvent|^cuGraphics(Unm|M)ap|^cuGL(Unm|M)ap|"
        r"^cuEGLStream.*Frame$"),
    "kMayWaitForHost": re.compile(r"HostFunc|AddCallback|WaitValue|^cuStreamBatchMemOp|^cuWaitExternal|^cuEGLStream.*Frame$"),
    "kTouches": re.compile(
        r"^cuMem(cpy|set|BatchDecompress)|^cuGraphLaunch|^cuStream(BatchMemOp|WaitValue|WriteValue)|^cuFabricCpy"),
    "kTakesMemory": re.compile(
        r"^cu(Module|Library)Load|^cuLaunch(?!HostFunc)|^cuGraph(Launch|Upload)|^cuFuncLoad|^cuOccupancy|"
        r"(Kernel|Module|Library)Get(Function|Module|Global|Kernel)(_v\d+)?$|SetLimit|^cuGreenCtx(Stream)?Create|"
        r"^cu(LogicalEndpoint|Multicast)(Bind|Create|AddDevice)"),
    "kEditsGraph": re.compile(r"^cuGraph(Add)?(Kernel|Memcpy|Memset|BatchMemOp)?Node(SetParams)?(_v\d+)?$"),
    "kLaunchesGraph": re.compile(r"^cuGraphLaunch"),
    "kWaitsForDevice": re.compile(r"^cuMemcpy(DtoH_v2)?(_ptds)?$"),
    "kRecords": re.compile(r"^cu(Event|Ctx|GreenCtx)Record"),
}
# Those with a hook of their own.
BY_HAND = {
    "kSubmits": re.compile(
        r"^cuMem(Alloc|AllocFromPool|Free)Async|"  # as short as the work before it
        r"^cuStream(Begin|End)(Capture|Recapture)|^cuStream(Destroy|Query|Synchronize)"),  # hooks/stream.cc
    "kEditsGraph": re.compile(r"^cuGraphAddNode"),  # hooks/graph.cc
    "kTakesMemory": re.compile(r"^cu(LogicalEndpoint|Multicast)BindAddr"),  # hooks/mappings.cc
}

WORK = ("CUstream", "CUgraphExec", "CUlaunchConfig")
MEMORY = ("CUdeviceptr", "CUmemGenericAllocationHandle", "CUmemoryPool", "CUlogicalEndpointId", "CUarray",
          "CUmipmappedArray", "CUexternalMemory", "CUgraphicsResource", "CUipcMemHandle")
GRAPHS = ("CUgraph", "CUgraphNode")
OTHERS = ("CUcontext", "CUgreenCtx", "CUevent", "CUfunction", "CUkernel", "CUmodule", "CUlibrary")

# Reasons that say of a function that it has nothing to do with either.
NEITHER = re.compile(r"^(neither memory nor work|asks about limits|stops all calls meanwhile|module memory)$")
# Of those that are given a stream, or an executable graph to a stream, why nothing is handed to it.
OF_STREAMS = re.compile(
    r"^asks about |^sets how a stream works|^changes what comes after what|^reclamation does not rely on it$|"
    r"^no memory changes hands$|^v1 ABI$|^work of its primary context$")


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


def undecided(toolkit, hooks, passes):
    for name in sorted(set(toolkit.functions) - set(hooks) - set(passes)):
        yield (f"{name}: CUDA {toolkit.version} has it; hook it in shim/hooks.def, or write in shim/pass-list.txt "
               "why it may pass")


def begins_capture(toolkit, name):
    return toolkit.takes(name, "CUstream") and (toolkit.takes(name, "CUstreamCaptureMode") or toolkit.takes(name, "CUgraph"))


def wrong_reasons(toolkit, passes):
    """What passes, and takes what its reason says it has nothing to do with."""
    for name, why in sorted(passes.items()):
        taken = [kind for kind in WORK + MEMORY + GRAPHS + OTHERS if toolkit.takes(name, kind)]
        if begins_capture(toolkit, name):
            yield f"{name}: it takes a stream and a graph or a capture's mode, and so begins a capture: hook it"
        elif NEITHER.search(why) and taken:
            yield f"{name}: it takes {' and '.join(taken)}, and its reason on the pass list is: {why}"
        elif toolkit.takes(name, "CUstream") and not OF_STREAMS.search(why):
            yield f"{name}: it takes a stream, and why nothing is handed over is not said: {why}"


def traits_missing(names, toolkits):
    forwarded = hook_tables.forwarded()
    for name in sorted(names):
        takes_stream = any(toolkit.takes(name, "CUstream") for toolkit in toolkits)
        by_type = {"kSubmits"} if takes_stream and not TRAITS["kRecords"].search(name) else set()
        for trait, pattern in TRAITS.items():
            by_hand = trait in BY_HAND and BY_HAND[trait].search(name)
            wanted = pattern.search(name) or trait in by_type
            if wanted and not by_hand and trait not in forwarded.get(name, ()):
                yield f"{name}: it is {trait} by its name or what it takes, and its row of shim/forwarded.def does not say so"


def main(newer_is_wrong=False):
    if sys.argv[1:2] == ["--keep"]:
        cuda_headers.keep(cuda_headers.newest(pathlib.Path(sys.argv[2]).resolve())[0])
        return 0
    newest, why_not = cuda_headers.newest(pathlib.Path(os.environ["BUILD_DIR"]))
    toolkits = [cuda_headers.Toolkit(os.environ["CUDA_INCLUDE"].split(";")[0]), *([newest] if newest else [])]
    hooks, passes, kept = hook_tables.hooks(), passed(), cuda_headers.kept()
    newer = set()
    for toolkit in toolkits:
        if toolkit.version > DECIDED and not newer_is_wrong:
            newer |= set(toolkit.functions) - set(hooks) - set(passes)
            toolkit.functions = {name: takes for name, takes in toolkit.functions.items() if name not in newer}
    known = kept.union(*(toolkit.functions for toolkit in toolkits))
    findings = [finding for toolkit in toolkits for finding in (*undecided(toolkit, hooks, passes), *wrong_reasons(toolkit, passes))]
    findings += [f"{name}: in tests/hygiene/cuda-names.txt, and neither hooked nor passed" for name in sorted(kept - set(hooks) - set(passes))]
    findings += [f"{name}: not in tests/hygiene/cuda-names.txt; try tests/hygiene/coverage_test.py --keep BUILD" for name in sorted(known - kept)]
    findings += out_of_place()
    findings += traits_missing(set(hooks), toolkits)
    findings += [f"{name}: in a table, and no header declares it" for name in sorted((set(hooks) | set(passes)) - known)]
    findings += [f"{name}: hooked and on the pass list" for name in sorted(set(hooks) & set(passes))]
    findings += [f"{name}: hooked twice" for name in sorted(set(hooks)) if hooks.count(name) > 1]
    findings += [f"{name}: on the pass list without a reason" for name, why in passes.items() if not why]
    if "cuGetExportTable" in hooks:
        findings.append("cuGetExportTable: the runtime checks the driver's tables; never hook it")
    findings += [f"only {len(toolkit.functions)} functions were found in {toolkit.include}: the headers were not understood"
                 for toolkit in toolkits if len(toolkit.functions) < 400]
    print("\n".join(dict.fromkeys(findings)))
    print(f"CUDA {', '.join(str(toolkit.version) for toolkit in toolkits)}: {len(known)} functions, {len(set(hooks))} hooked, {len(passes)} passed")
    if newest is None:
        print(f"the newest headers were not read, only the names of CUDA 13.5 as they are kept: {why_not}")
    if newer:
        print(f"skipped: newer than CUDA {DECIDED}, and nobody has decided on them: {' '.join(sorted(newer))}")
    return 1 if findings else SKIPPED if newer else 0


if __name__ == "__main__":
    sys.exit(main())
