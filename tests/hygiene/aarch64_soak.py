#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On aarch64: every source of the device object compiles, the object links, and a program that runs under it by
qemu-user gets the hook of a CUDA function, and everything else as it is, from dlsym and dlvsym. The library for audit
compiles and links, and serves a library that was opened with RTLD_DEEPBIND. `make soak`; BUILD_DIR
names the build whose compile commands are taken. Skipped without g++-aarch64-linux-gnu or qemu-user; no CUDA program
and no device is tried.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
CC, CXX, QEMU = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64"
TARGETS = ("cistern_config", "cistern_allocator", "cistern_shim")

DRIVER = """
int cuInit(unsigned flags) { return (int)flags; }
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes) { *address = bytes; return 0; }
int of_the_driver(void) { return 7; }
"""
PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static const char *owner(void *symbol) {
  Dl_info info;
  if (symbol == NULL) return "none";
  if (!dladdr(symbol, &info)) return "nobody";
  const char *slash = strrchr(info.dli_fname, '/');
  return slash == NULL ? info.dli_fname : slash + 1;
}
int main(int count, char **words) {
  void *driver = dlopen(words[count - 1], RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) return 1;
  printf("%s %s %s %s\\n", owner(dlsym(driver, "cuMemAlloc_v2")), owner(dlsym(driver, "of_the_driver")),
         owner(dlsym(RTLD_DEFAULT, "qsort")), owner(dlsym(RTLD_NEXT, "no_such_function")));
  printf("%s\\n", owner(dlvsym(RTLD_DEFAULT, "qsort", "GLIBC_2.17")));
  return 0;
}
"""
PLUGIN = """
int cuMemAlloc_v2(unsigned long long *, unsigned long);
int plugin_alloc(unsigned long long *address) { return cuMemAlloc_v2(address, 1); }
"""
STAND_IN = "int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes) { *address = bytes; return 42; }"
OPENS_DEEP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
  for (int deep = 0; deep < 2; ++deep) {
    void *plugin = dlopen(words[count - 2 + deep], RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
    if (plugin == NULL) return puts(dlerror()), 1;
    unsigned long long address = 0;
    printf("%d\\n", ((int (*)(unsigned long long *))dlsym(plugin, "plugin_alloc"))(&address));
  }
  return 0;
}
"""


def commands(targets=TARGETS):
    """Of each source of these targets, the command that compiles it here."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        if re.search(rf"-o CMakeFiles/({'|'.join(targets)})\.dir/", entry["command"]):
            yield pathlib.Path(entry["file"]), entry["command"].split()


def cross(source, words, output):
    """The same command for aarch64, to another place, without link-time optimisation and a compiler launcher."""
    first = next(i for i, word in enumerate(words) if word.startswith("-"))
    kept = [word for word in words[first:] if "lto" not in word and word != "-Winvalid-pch"]
    if "-include" in kept:  # what is parsed ahead for speed
        at = kept.index("-include")
        del kept[at:at + 2]
    kept[kept.index("-o") + 1] = str(output)
    return [CC if source.suffix == ".S" else CXX, *kept]


class Aarch64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def run_(self, *words, **options):
        done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
        self.assertEqual(done.returncode, 0, f"{' '.join(map(str, words))}\n{done.stderr}")
        return done.stdout

    def compile(self, name, text, *options):
        source = self.folder / f"{name}.c"
        source.write_text(text, encoding="utf-8")
        self.run_(CC, "-O2", source, "-o", self.folder / name, *options)
        return self.folder / name

    def test_the_object_links_and_its_dlsym_works(self):
        found = list(commands())
        self.assertGreater(len(found), 150)
        objects = [self.folder / f"{i}.o" for i in range(len(found))]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda at: self.run_(*cross(*found[at], objects[at]), cwd=BUILD), range(len(found))))
        made = self.folder / "libcistern-device.so"
        self.run_(CC, "-shared", "-o", made, *objects, f"-Wl,--version-script={BUILD / 'cistern-device.map'}",
                  "-Wl,-Bsymbolic,-z,defs,-z,nodelete,-z,now,-z,relro,-z,noexecstack,--as-needed")
        driver = self.compile("libcuda.so.1", DRIVER, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
        program = self.compile("program", PROGRAM, "-ldl")
        libc = self.run_(QEMU, "-L", "/usr/aarch64-linux-gnu", program, driver).split("\n")
        self.assertEqual(libc[0].split(), ["libcuda.so.1", "libcuda.so.1", "libc.so.6", "none"])
        under = self.run_(QEMU, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={made}", program, driver).split("\n")
        self.assertEqual(under[0].split(), ["libcistern-device.so", "libcuda.so.1", "libc.so.6", "none"])
        self.assertEqual(under[1:], libc[1:])

    def test_the_library_for_audit_serves_what_binds_deep(self):
        (source, words), = commands(("cistern-audit",))
        compiled, audit = self.folder / "audit.o", self.folder / "libcistern-audit.so"
        self.run_(*cross(source, words, compiled), cwd=BUILD)
        self.run_(CC, "-shared", "-nostdlib", "-o", audit, compiled, "-Wl,-z,defs,-z,now,-z,relro,-z,noexecstack")
        driver = self.compile("libcuda.so.1", DRIVER, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
        plugins = [self.compile(name, PLUGIN, "-shared", "-fPIC", driver, f"-Wl,-rpath,{self.folder}", *more)
                   for name, more in (("plain.so", ()), ("deep.so", ("-Wl,-z,lazy",)))]
        object_ = self.compile("libcistern-device.so", STAND_IN, "-shared", "-fPIC")
        program = self.compile("opens_deep", OPENS_DEEP, "-ldl")
        run = (QEMU, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={object_}")
        self.assertEqual(self.run_(*run, program, *plugins).split(), ["42", "0"])
        self.assertEqual(self.run_(*run, "-E", f"LD_AUDIT={audit}", program, *plugins).split(), ["42", "42"])


if __name__ == "__main__":
    for tool, package in ((CXX, "g++-aarch64-linux-gnu"), (QEMU, "qemu-user")):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed (package {package})")
            sys.exit(77)
    unittest.main()
