#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import elf

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import hook_tables  # noqa: E402


def exports(obj):
    """Exactly the hooks, dlsym, dlvsym and cistern_* are exported, without versions."""
    defined = elf.dynamic_symbols(obj, "--defined-only")
    names = {name for name, _ in defined}
    expected = set(hook_tables.hooks()) | {"dlsym", "dlvsym"}
    for name, version in defined:
        if version:
            yield f"{name} is exported with version {version}"
    for name in sorted(names - expected):
        if not name.startswith("cistern_"):
            yield f"{name} is exported and no hook"
    for name in sorted(expected - names):
        yield f"{name} is a hook and not exported"


elf.check(exports)
