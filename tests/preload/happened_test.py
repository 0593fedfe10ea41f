#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the random programs tested what they are for: each feature happened in some test that asks for it.

It runs after them, and reads what they noted in the build folder. A feature is judged once every test that asks for it
was run with the object at hand; if some are missing and it did not happen so far, this test is skipped. BUILD_DIR names
the build.
"""

import os
import pathlib
import sys

import expectations
import happenings

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def main():
    build = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
    words = dict.fromkeys(("programs", "source", "data"), "") | {"seed": "1"}
    reader = expectations.Reader(words)
    tests = {name: reader.tests(name)[name] for name in reader.names() if name.startswith("random/")}
    wanted = {name: test.happens for name, test in tests.items() if test.happens}
    notes = happenings.Notes(build, build / "libcistern-device.so")
    happened = {name: note for name in wanted if (note := notes.read(name, wanted[name])) is not None}
    never, open_ones = happenings.sum_up(wanted, happened)
    for name in sorted(never):
        print(f"FAIL: no random program {happenings.HAPPENINGS[name][0]}, so they tested nothing of it: {name}")
    if open_ones:
        print(f"not judged, since {len(wanted) - len(happened)} of {len(wanted)} tests were not run: {', '.join(sorted(open_ones))}")
    return 1 if never else SKIPPED if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
