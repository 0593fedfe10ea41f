#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point one way only, and nowhere in a circle.

Of the layers: shim -> allocator -> config, and CUDA's headers stay in shim. Of the rooms of a layer: a file
includes what lies in its own folder or in an earlier room of ROOMS, where "" is the layer's root. Of files:
x.h and x.cc are one node, and no such pair includes itself by way of others. Includes that are relative to
a parent folder are findings too, since they would hide a layer. The README of a layer has its rooms in that order.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUFFIXES = (".h", ".cc", ".S", ".def")

FORBIDDEN = {
    "config": r"allocator/|shim/|tests/|cuda|nv|libunwind|jemalloc",
    "allocator": r"shim/|tests/|cuda|nv|libunwind|jemalloc",
    "shim": r"tests/|cuda_runtime|driver_types|libunwind-",
}
# Parts of std that need libstdc++ at run time, or allocate.
NOT_INSIDE = re.compile(
    r"^(iostream|sstream|fstream|string|vector|map|set|unordered_\w+|memory_resource|functional|"
    r"thread|mutex|condition_variable|future|regex|locale|stdexcept|filesystem|iomanip|cuchar)$"
)
# Programs of their own, which the object has nothing of.
PROGRAMS = ("config/tool/", "allocator/record/tool/", "allocator/plan/tool/")

# The rooms of each layer, earlier ones first. Rooms that share a line do not include each other.
ROOMS = {
    "config": ["", "tool"],
    "allocator": ["base", "record reclaim", "chunk plan", "on_demand chunk_pools", "scratch host expandable", "graph_arena", ""],
    "shim": ["", "audit", "toolkit", "process", "entry", "host", "sites nvtx", "record", "ipc", "order", "pooled", "watch", "kinds", "hooks"],
}
# Beside their place in the order: what a room may use at all.
ONLY = {"allocator/scratch": ["base", "reclaim"], "allocator/host": ["base"],
        "allocator/record": ["base"], "allocator/plan": ["base", "record"]}


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match[1]


def room_of(name):
    """The folder of a file right below its layer; "" for the layer's root."""
    return name.split("/")[1] if name.count("/") > 1 else ""


def rank_of(layer, room):
    return next((i for i, line in enumerate(ROOMS[layer]) if room in line.split() or room == line), None)


def check_layers(files, findings):
    for name, found in files.items():
        layer = name.split("/")[0]
        for number, included in found:
            where = f"{name}:{number}"
            if re.match(FORBIDDEN[layer], included):
                findings.append(f"{where}: {layer} includes {included}")
            if ".." in included:
                findings.append(f"{where}: {included} is relative to a parent")
            if included.startswith(PROGRAMS) and not name.startswith(PROGRAMS):
                findings.append(f"{where}: {included} is of a program, which the object has nothing of")
            if NOT_INSIDE.match(included) and not name.startswith(PROGRAMS):
                findings.append(f"{where}: <{included}> needs libstdc++ or allocates")


def check_rooms(layer, files, findings):
    """Returns how many includes from one room into another it judged."""
    judged = 0
    for name, found in files.items():
        room = room_of(name)
        if rank_of(layer, room) is None:
            findings.append(f"{name}: {layer}/{room} is no room of ROOMS")
            continue
        for number, included in found:
            other = room_of(included)
            if not included.startswith(layer + "/") or other == room:
                continue
            judged += 1
            rank = rank_of(layer, other)
            if rank is None or rank >= rank_of(layer, room) or other not in ONLY.get(f"{layer}/{room}", [other]):
                findings.append(f"{name}:{number}: {layer}/{room} includes {included}, which is no earlier room")
    return judged


def pair_of(name):
    return name.rsplit(".", 1)[0]


def check_circles(files, findings):
    """Every circle is named once, by the way round it. Returns how many includes it followed."""
    edges = {}
    for name, found in files.items():
        targets = {pair_of(included) for _, included in found if included in files} - {pair_of(name)}
        edges.setdefault(pair_of(name), set()).update(targets)
    done, way = set(), []

    def visit(node):
        if node in way:
            findings.append("a circle: " + " -> ".join([*way[way.index(node):], node]))
            return
        if node in done:
            return
        way.append(node)
        for target in sorted(edges.get(node, ())):
            visit(target)
        way.pop()
        done.add(node)

    for node in sorted(edges):
        visit(node)
    return sum(map(len, edges.values()))


def check_page(layer, findings):
    """The rooms that a layer's README names, as rows of a table, are those of ROOMS, earlier ones first."""
    page = ROOT / layer / "README.md"
    told = re.findall(r"^\| `(\w+)/` \|", page.read_text(encoding="utf-8"), re.M)
    rooms = [room for line in ROOMS[layer] for room in line.split()]
    if sorted(told) != sorted(rooms):
        findings.append(f"{page.relative_to(ROOT)}: rooms {told}, but there are {rooms}")
    elif told != sorted(told, key=lambda room: rank_of(layer, room)):
        findings.append(f"{page.relative_to(ROOT)}: rooms {told}, which is not their order")


def main():
    findings, counts = [], []
    for layer in FORBIDDEN:
        files = {str(path.relative_to(ROOT)): list(includes(path))
                 for path in sorted((ROOT / layer).rglob("*")) if path.suffix in SUFFIXES}
        counts.append(f"{len(files)} files of {layer}")
        if not files:
            findings.append(f"no sources under {ROOT / layer}")
        check_layers(files, findings)
        if layer != "config":
            check_page(layer, findings)
        between, followed = check_rooms(layer, files, findings), check_circles(files, findings)
        counts[-1] += f" ({between} includes between rooms, {followed} between pairs)"
        if between == 0 or followed == 0:
            findings.append(f"nothing to check between the rooms or the files of {layer}")
    print("\n".join(findings + [", ".join(counts) + " read"]))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
