# SPDX-License-Identifier: Apache-2.0
"""What the tables of hooks say (shim/hooks.def and those that it includes), read as the compiler reads them."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def preprocessed(table, *macros):
    source = "".join(f"#define {macro}\n" for macro in macros) + f'#include "shim/{table}"\n'
    return subprocess.run(["g++", "-E", "-P", "-x", "c++", f"-I{ROOT}", "-"], input=source,
                          check=True, capture_output=True, text=True).stdout


def hooks():
    """Every symbol that is hooked, as often as it is in the tables."""
    text = preprocessed("hooks.def", "CISTERN_HOOK(symbol, parameters, arguments) HOOK symbol")
    return re.findall(r"HOOK (\w+)", text)


def forwarded():
    """The symbols that are forwarded, and the names of the traits of each."""
    text = preprocessed("forwarded.def", "CISTERN_FORWARDED(symbol, parameters, arguments, traits) ROW symbol : traits ;")
    return {symbol: set(re.findall(r"\w+", traits)) for symbol, traits in re.findall(r"ROW (\w+) : ([^;]*);", text)}
