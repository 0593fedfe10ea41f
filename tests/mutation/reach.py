# SPDX-License-Identifier: Apache-2.0
"""Which tests reach which line of allocator/, shim/ and config/, and which object files a line is compiled into.

A test that does not reach a line cannot notice what is wrong there. Measured once, with a build of its own, in which
each basic block notes that it ran (reached.c; x86-64 only). A test that is not known, or did not pass there, is taken to
reach everything, a line of a file that changed since to be reached by everything; a test that changed still reaches what
it did.
"""

import bisect
import collections
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import trial
import work_tree

HERE = pathlib.Path(__file__).resolve().parent
OF_A_CALL = 5  # bytes, as in reached.c
R_X86_64_64, R_X86_64_DTPOFF64 = 1, 21
PRODUCTS = ("unit_tests", *trial.INSTALLED[1])
# Without optimisation the objects need functions of libstdc++ that are inlined otherwise.
NOT_INLINED = "-Wl,--no-as-needed -lstdc++ -Wl,--as-needed"
NOTING = ("allocator", "shim", "config", "tests/unit")  # code of these folders notes that it ran
LAUNCHER = """#!/bin/sh
for source; do :; done
case $source in
{folders})
  exec "$@" -O0 -fsanitize-coverage=trace-pc ;;
esac
exec "$@"
"""
OURS = re.compile(r"/CMakeFiles/(cistern|unit_tests)[^/]*[.]dir/")  # the object files of what is tested
RETURNS = re.compile(r"^ *([0-9a-f]+):\s+call +[0-9a-f]+ <__sanitizer_cov_trace_pc>\n", re.MULTILINE)


class Reach:
    def __init__(self, path):
        known = json.loads(path.read_text(encoding="utf-8"))
        self.files, self.objects = known["files"], known["objects"]
        self.tests = {name: 1 << i for i, name in enumerate(known["tests"])}
        self.lines = {name: {int(line): int(mask, 16) for line, mask in lines.items()}
                      for name, lines in known["lines"].items()}
        self.compiled = {name: {int(line): found for line, found in lines.items()}
                         for name, lines in known["compiled"].items()}

    def holds(self, root, path):
        return self.files.get(str(path)) == state_of(root / path)

    def tests_of(self, root, path, lines, tests):
        """Those that may reach one of the lines; all, where nothing is known of them."""
        masks = [self.lines.get(path, {}).get(line) for line in lines]
        known = [mask for mask in masks if mask is not None]
        if not known or not self.holds(root, path):
            return tests
        reached = 0
        for mask in known:
            reached |= mask
        return [test for test in tests if test.name not in self.tests or self.tests[test.name] & reached]

    def objects_of(self, root, path, lines):
        """Object files into which one of the lines is compiled; none, where nothing is known of them."""
        if not self.holds(root, path):
            return []
        found = {i for line in lines for i in self.compiled.get(path, {}).get(line, ())}
        return [self.objects[i] for i in sorted(found)]


def short_hash(content):
    return hashlib.sha256(content).hexdigest()[:16]


def state_of(path):
    return short_hash(path.read_bytes())


def measure(tree, memory, path):
    """Builds, runs every test once, and writes what was found."""
    build = tree.home / "reach"
    configure(tree, build)
    tree.call("cmake", "--build", str(build), "--parallel", "--target", "unit_tests", *trial.INSTALLED[0].split())
    for others in ("programs", "sim"):  # what a test runs with is as it was built before
        if not (build / others).is_symlink():
            shutil.rmtree(build / others, ignore_errors=True)
            (build / others).symlink_to(tree.build_folder / others)
    objects, compiled = lines_of_objects(build, tree.folder)
    modules = [Module(build / product, tree.folder) for product in PRODUCTS]
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    for module in modules:  # a line that no test reaches is known, too
        for place in module.all_places():
            lines[place[0]][place[1]] |= 0
    measured = run_all(tree, memory, list(trial.read_tests(build)), modules)
    for i, reached in enumerate(measured.values()):
        for name, line in reached:
            lines[name][line] |= 1 << i
    path.write_text(json.dumps({
        "files": {str(file.relative_to(tree.folder)): state_of(file) for folder in NOTING
                  for file in (tree.folder / folder).rglob("*") if file.suffix in (".h", ".cc")},
        "tests": list(measured), "objects": objects, "compiled": compiled,
        "lines": {name: {line: f"{mask:x}" for line, mask in of.items()} for name, of in lines.items()},
    }), encoding="utf-8")


def configure(tree, build):
    launcher, runtime = tree.home / "launcher", tree.home / "reached.o"
    folders = "|".join(f"{tree.folder}/{folder}/*" for folder in NOTING)
    launcher.write_text(LAUNCHER.format(folders=folders), encoding="utf-8")
    launcher.chmod(0o755)
    tree.call("cc", "-O1", "-fPIC", "-c", str(HERE / "reached.c"), "-o", str(runtime))
    tree.call("cmake", "-S", ".", "-B", str(build), "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -g1 -w",
              f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_SHARED_LINKER_FLAGS={runtime} {NOT_INLINED}",
              f"-DCMAKE_EXE_LINKER_FLAGS={runtime}", *work_tree.generator(build))


def run_all(tree, memory, tests, modules):
    """{name: places that it reached} of the tests that pass."""
    found = {}
    with tempfile.TemporaryDirectory(dir=tree.home) as scratch:
        scratch = pathlib.Path(scratch)
        scratch.chmod(0o711)
        told = []
        for i, test in enumerate(tests):
            folder = scratch / str(i)
            told.append(test._replace(environment={**test.environment, "REACH_MAPS": str(folder)}))
            folder.mkdir()
            for module in modules:
                module.make_notes(folder)
        runner = trial.Runner(tree, trial.Memory(tree.home / "reach-memory.json"))
        runner.memory.seconds = {name: 3 * seconds for name, seconds in memory.seconds.items()}
        for outcome in runner.outcomes(told):
            folder = pathlib.Path(outcome.test.environment["REACH_MAPS"])
            if outcome.status == "passed":
                found[outcome.test.name] = {place for module in modules for place in module.reached(folder)}
            shutil.rmtree(folder)
    for name, seconds in runner.memory.seconds.items():
        memory.seconds.setdefault(name, seconds)
    return found


class Module:
    """A file that was linked, its blocks and their lines."""

    def __init__(self, path, root):
        start, self.size = place_in_memory(path)
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], check=True, capture_output=True,
                              text=True).stdout
        calls = [int(found[1], 16) for found in RETURNS.finditer(text)]
        functions = [int(found, 16) for found in re.findall(r"^([0-9a-f]+) <[^>]*>:$", text, re.MULTILINE)]
        self.blocks = collections.defaultdict(set)  # by the number of the call: (file, line)
        for place, begin, end in line_table(path, root):
            for call in calls_between(calls, functions, begin, end):
                self.blocks[(call + OF_A_CALL - start) // OF_A_CALL].add(place)

    def all_places(self):
        return set().union(*self.blocks.values())

    def make_notes(self, folder):
        notes = folder / str(self.size)
        with notes.open("wb") as file:
            file.truncate(self.size // OF_A_CALL + 1)
        notes.chmod(0o666)

    def reached(self, folder):
        notes = (folder / str(self.size)).read_bytes()
        return {place for found in re.finditer(b"\1", notes) for place in self.blocks.get(found.start(), ())}


def calls_between(calls, functions, begin, end):
    """The blocks that the code from begin to end belongs to. A block begins with its call, which counts for the line
    before it where that has no more of the block; what stands before the first call of a function is of its block."""
    first = bisect.bisect_right(calls, begin) - 1
    if first < 0 or calls[first] < functions[bisect.bisect_right(functions, begin) - 1]:
        first += 1
    last = max(bisect.bisect_left(calls, end - OF_A_CALL), first + 1)
    return calls[first:last]


def place_in_memory(path):
    """Where its image starts by its own count, and its length."""
    text = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
    places = {name: int(value, 16) for value, name in re.findall(r"^([0-9a-f]+) \w (\S+)$", text, re.MULTILINE)}
    return places["__ehdr_start"], places["_end"] - places["__ehdr_start"]


def line_table(path, root):
    """((file, line), begin, end) of all code that comes from below root."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.relocation import RelocationHandler
    # It does not know those of thread-local variables, which stand between what is read here.
    recipes = RelocationHandler._RELOCATION_RECIPES_X64
    recipes.setdefault(R_X86_64_DTPOFF64, recipes[R_X86_64_64])
    with open(path, "rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            names = names_of(program.header, root)
            before = None
            for entry in program.get_entries():
                state = entry.state
                if state is None:
                    continue
                if before is not None and not before.end_sequence and names[before.file] is not None:
                    yield (names[before.file], before.line), before.address, state.address
                before = state


def names_of(header, root):
    """Of a program's files, relative to root; None for others."""
    folders = [folder.decode() for folder in header["include_directory"]]
    names = []
    for entry in header["file_entry"]:
        name = pathlib.Path(folders[0], folders[entry.dir_index], entry.name.decode())
        inside = name.is_relative_to(root) and not name.is_relative_to(root / "build")
        names.append(str(name.relative_to(root)) if inside else None)
    return names


def lines_of_objects(build, root):
    objects, compiled = [], collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(build.glob("CMakeFiles/*.dir/**/*.o")):
        if OURS.search(str(path)):
            for name, line in sorted({place for place, *_ in line_table(path, root)}):
                compiled[name][line].append(len(objects))
            objects.append(str(path.relative_to(build)))
    return objects, compiled
