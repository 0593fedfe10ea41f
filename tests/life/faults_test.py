#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each driver call that the object makes fails once, at its first, second and third use, with codes
that may last and codes of the moment. The program (stumble.cc) is told nothing, or its own call's
failure, once; nothing is lost, and the pools work afterwards.

Which calls there are is read from the sources: a new one fails here until RULES says what a program
may notice of it, or NOT_RUN why it needs no run."""

import itertools
import re

import life

SHIM = life.ROOT / "shim"
ILLEGAL_ADDRESS, OUT_OF_MEMORY, INVALID_CONTEXT, NOT_PERMITTED = 700, 2, 201, 800
CODES = (ILLEGAL_ADDRESS, OUT_OF_MEMORY, INVALID_CONTEXT, NOT_PERMITTED)

# Where the calls of the program itself are made; of the others only those of driver_calls.def are ours,
# and the fills of what the program is about to get. In a file that asks much for itself all are ours but a few (ITS_OWN).
FOR_THE_PROGRAM = ("hooks/arrays.cc", "hooks/memory.cc", "hooks/pointer.cc", "hooks/", "kinds/linear.cc",
                   "kinds/stream_ordered/stream_ordered.")
OURS_THERE = {"cuMemsetD8Async", "cuMemsetD8Async_ptsz"}
ITS_OWN = {"hooks/arrays.cc": {"cuArrayCreate_v2"}, "hooks/memory.cc": set(), "hooks/pointer.cc": set(),
           "kinds/stream_ordered/stream_ordered.": {"cuMemFreeAsync_ptsz"}}

SILENT = "the program does not notice"
TOLD = "the program made the call itself, and is told"
MAY_BE_TOLD = "the program is told where it would have made the call itself"
RULES = {
    "cuCtxGetCurrent": SILENT,
    "cuCtxGetId": SILENT,
    "cuCtxPopCurrent_v2": SILENT,
    "cuCtxPushCurrent_v2": SILENT,
    "cuCtxRecordEvent": SILENT,
    "cuDevicePrimaryCtxGetState": SILENT,
    "cuDeviceTotalMem_v2": SILENT,
    "cuEventCreate": SILENT,
    "cuEventDestroy_v2": SILENT,
    "cuEventQuery": SILENT,
    "cuMemAlloc_v2": TOLD,
    "cuMemFreeAsync": SILENT,
    "cuMemFree_v2": MAY_BE_TOLD,
    "cuMemGetAddressRange_v2": SILENT,
    "cuMemGetInfo_v2": MAY_BE_TOLD,
    "cuMemHostAlloc": MAY_BE_TOLD,
    "cuStreamCreate": MAY_BE_TOLD,
    "cuStreamDestroy_v2": MAY_BE_TOLD,
    "cuStreamGetCaptureInfo": SILENT,
    "cuStreamGetCtx": SILENT,
    "cuStreamIsCapturing": SILENT,
    "cuStreamIsCapturing_ptsz": SILENT,
    "cuStreamSynchronize": SILENT,
    "cuStreamWaitEvent": SILENT,
}
OWN_KIND = "the program's own call, told as it is; the charge follows: cap/failing_kinds.told"
FOR_CHARGES = "asked for a charge alone: cap/failing_kinds.unseen"
FOR_UNITS = "made for expandable memory alone: expandable/failing"
FOR_OPENED_UNITS = "made where another process opens a block in units alone: ipc/ipc_ends"
FOR_KEPT_POOLS = "made of the driver's pools that keep memory because of us: pooling/kept_pools.failing"
FOR_FILLS = "made where memory is filled alone: fill/filled_stumble"
NOT_RUN = {
    "cuArray3DCreate_v2": OWN_KIND,
    "cuArrayDestroy": OWN_KIND,
    "cuArrayGetMemoryRequirements": FOR_CHARGES,
    "cuCtxSynchronize": "in the program's frees, where it asks for that: reclaim/free_sync.stubborn",
    "cuCtxGetDevice": "asked of a context that nobody knows: an error is as good an answer as any",
    "cuDeviceCanAccessPeer": FOR_UNITS,
    "cuDeviceGetAttribute": FOR_UNITS,
    "cuDeviceGetDefaultMemPool": f"{FOR_CHARGES}; and {FOR_KEPT_POOLS}",
    "cuDeviceGetMemPool": "asked for the scratch cache, whether a pool is a device's current one: an "
                          "error says that it is not; and before a nearly full device gives "
                          "stream-ordered memory: in_flight/ordered_room.failing; "
                          f"and {FOR_KEPT_POOLS}",
    "cuEventSynchronize": "of events that have passed, as the process ends: nothing follows that could notice",
    "cuEventRecord": "only for drivers without cuCtxRecordEvent: order/old_driver.stumble",
    "cuFuncGetParamInfo": "asked of kernels beside pinned memory alone, and one that the driver does not "
                          "describe is waited for: reclaim/debts_quiet.not_described",
    "cuKernelGetParamInfo": "the same, of a kernel that is no function",
    "cuIpcCloseMemHandle": "the program's own call, answered as it is; and of a mapping that is not used: "
                           "ipc/ipc_ends.failing",
    "cuIpcGetMemHandle": "the program's own call, answered as it is",
    "cuMemAddressFree": FOR_UNITS,
    "cuMemAddressReserve": FOR_UNITS,
    "cuMemCreate": f"{OWN_KIND}; and {FOR_UNITS}",
    "cuMemGetAllocationGranularity": "asked where a cap refuses; what it says is told",
    "cuMemExportToShareableHandle": FOR_OPENED_UNITS,
    "cuMemGetHandleForAddressRange": "the program's own call, answered as it is",
    "cuMemFreeHost": "made where pinned memory was idle for long alone: pinned/pinned_stumble",
    "cuMemHostGetDevicePointer_v2": "the program's own call, answered as it is",
    "cuMemHostGetFlags": "asked after a refused cuMemFreeHost alone: pinned/pinned_stumble",
    "cuMemImportFromShareableHandle": FOR_OPENED_UNITS,
    "cuMemMap": f"{OWN_KIND}; and {FOR_UNITS}",
    "cuMemPoolGetAttribute": f"asked of a nearly full device: in_flight/ordered_room.failing; and {FOR_KEPT_POOLS}",
    "cuMemPoolSetAttribute": FOR_KEPT_POOLS,
    "cuMemPoolTrimTo": "made of pools that keep what nothing uses, where memory is short: pooling/beside_pools.failing; "
                       f"and {FOR_KEPT_POOLS}",
    "cuMemRelease": f"{OWN_KIND}; and {FOR_UNITS}",
    "cuMemRetainAllocationHandle": OWN_KIND,
    "cuMemSetAccess": FOR_UNITS,
    "cuMemUnmap": f"{OWN_KIND}; and {FOR_UNITS}",
    "cuMemsetD8Async": FOR_FILLS,
    "cuMemsetD8Async_ptsz": FOR_FILLS,
    "cuMipmappedArrayCreate": OWN_KIND,
    "cuMipmappedArrayDestroy": OWN_KIND,
    "cuMipmappedArrayGetMemoryRequirements": FOR_CHARGES,
    "cuPointerGetAttribute": "the program's own call, answered as it is",
    "cuPointerGetAttributes": "the program's own call, answered as it is",
    "cuPointerSetAttribute": "the program's own call, answered as it is",
    "cuThreadExchangeStreamCaptureMode": "during captures that are short of memory: what is idle "
                                         "then stays with the pools",
    "cuStreamQuery": FOR_FILLS,
    "cuStreamGetGreenCtx": "asked of streams that nobody saw made: an error is as good an answer as none",
    "cuStreamGetId": "asked for the scratch cache alone: scratch/scratch_stumble",
}
# What is asked only after another failure.
ALONG_WITH = {"cuMemGetAddressRange_v2": "cuMemFree_v2:1=700,"}
# cuMemFree_v2 gives idle memory back only where cuMemFreeAsync cannot.
WITHOUT_FREE_ASYNC = {"SIMCUDA_FREE_ASYNC": "refused"}
UNDER = {"cuMemFree_v2": WITHOUT_FREE_ASYNC, "cuMemGetAddressRange_v2": WITHOUT_FREE_ASYNC}
# There a code is an answer: the memory went with its context.
ANSWERS = {("cuMemGetAddressRange_v2", INVALID_CONTEXT)}
TRACED = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuEventCreate", "cuEventQuery",
          "cuCtxRecordEvent", "cuMemGetAddressRange_v2"}


def own_calls():
    """The functions of driver_calls.def, and the hooked ones that the object itself calls."""
    table = (SHIM / "entry" / "driver_calls.def").read_text(encoding="utf-8")
    listed = set(re.findall(r"^CISTERN_CALL\((\w+)", table, re.MULTILINE))
    called, skipped = set(), set()
    for source in [*SHIM.rglob("*.h"), *SHIM.rglob("*.cc")]:
        found = set(re.findall(r"\b(?:driver\(\)|d)\.(cu\w+)", source.read_text(encoding="utf-8")))
        place = next((p for p in FOR_THE_PROGRAM if str(source.relative_to(SHIM)).startswith(p)), None)
        skipped.add(place)
        in_others = place is not None and place not in ITS_OWN
        called |= (listed | OURS_THERE) & found if in_others else found - ITS_OWN.get(place, set())
    assert skipped == {None, *FOR_THE_PROGRAM}, "FOR_THE_PROGRAM names a file that there is not"
    return listed, called


class Faults(life.Life):
    def test_every_call_of_ours_has_a_run_or_a_reason(self):
        listed, called = own_calls()
        self.assertGreater(len(called), 10, "the sources were not understood")
        self.assertEqual(listed - called, set(), "in driver_calls.def, and never called")
        known = set(RULES) | set(NOT_RUN)
        self.assertEqual(called - known, set(), "say in RULES or NOT_RUN what its failure means")
        self.assertEqual(known - called, set(), "no longer called")

    def stumble(self, fault, code, told, symbol):
        """`told`: how often the program may be told of the code."""
        process = self.start((self.program("stumble_lazy"),), True, SIMCUDA_FAIL=f"{fault}={code}",
                             SIMCUDA_MEMORY_MB="256", SIMCUDA_LATENCY="cuMemsetD8Async=300us",
                             SIMCUDA_TRACE="trace", **UNDER.get(symbol, {}))
        status, out, err = self.finish(process)
        trace = (process.folder / "trace").read_text(encoding="utf-8")
        with self.subTest(fault=fault, code=code):
            self.assertEqual((status, err), (0, ""))
            lines = out.splitlines()
            for line in ("blocks that could not be freed: 0", "memory lost: 0",
                         "contexts on the stack: 1", "100 rounds of 4096 bytes: 0 failures"):
                self.assertIn(line, lines)
            told_lines = [f"failed: {code} ({n} times)" if n else "failed:" for n in told]
            self.assertIn(lines[-1], told_lines)
        return trace

    def test_each_fails_once(self):
        every = itertools.product(RULES.items(), CODES, (1, 2, 3))
        for (symbol, rule), code, use in life.part(each for each in every if (each[0][0], each[1]) not in ANSWERS):
            told = {SILENT: (0,), TOLD: (1,), MAY_BE_TOLD: (0, 1)}[rule]
            if rule == TOLD and code == OUT_OF_MEMORY:
                told = (0, 1)  # the pools make room and ask again
            trace = self.stumble(ALONG_WITH.get(symbol, "") + f"{symbol}:{use}", code, told, symbol)
            if use == 1 and symbol in TRACED:
                self.assertRegex(trace, rf"(?m)^{symbol} .*-> {code} ")

    def test_a_free_that_was_done_and_is_said_to_have_failed(self):
        for use in (1, 2, 3):
            self.stumble(f"cuMemFree_v2:{use}:after", ILLEGAL_ADDRESS, (0,), "cuMemFree_v2")


if __name__ == "__main__":
    life.main()
