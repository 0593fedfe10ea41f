#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern run --audit`: libraries that are opened with RTLD_DEEPBIND are served, and programs do the same as without
Cistern. BUILD_DIR names the build."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
CLEAN = {key: value for key, value in os.environ.items()
         if not key.startswith(("CISTERN_", "FLAGS_", "GE_", "SIMCUDA_", "LD_", "MALLOC_", "GLIBC_"))}
CLEAN |= {"LD_LIBRARY_PATH": f"{BUILD / 'sim'}:{BUILD / 'programs'}", "SIMCUDA_KERNELS": str(BUILD / "sim" / "libtest-kernels.so")}
PLUGIN = """
#include <stdlib.h>
#include <string.h>
#include <string>
extern "C" {
int cuMemAlloc_v2(unsigned long long* block, size_t bytes);
int cuMemFree_v2(unsigned long long block);
char* plugin_text(const char* text) { return strcpy(static_cast<char*>(malloc(40000)), text); }
void plugin_free(void* block) { free(block); }
std::string* plugin_string(const char* text) { return new std::string(text); }
int plugin_alloc(unsigned long long* block, size_t bytes) { return cuMemAlloc_v2(block, bytes); }
int plugin_release(unsigned long long block) { return cuMemFree_v2(block); }
}
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
}
template <typename Function> Function* of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
int main(int, char** words) {
  auto* volatile allocate_here = malloc;  // at a fixed address, malloc is then in the program's table
  const bool deep = strcmp(words[2], "deep") == 0, apart = strcmp(words[2], "apart") == 0;
  const int flags = RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0);
  void* library = apart ? dlmopen(LM_ID_NEWLM, words[1], flags) : dlopen(words[1], flags);
  if (library == nullptr) return puts(dlerror()), 1;
  auto* text = of<char*(const char*)>(library, "plugin_text");
  auto* give_back = of<void(void*)>(library, "plugin_free");
  if (!apart) {
    char* longer = static_cast<char*>(realloc(text("some text"), 100000));
    puts(longer);
    free(longer);
    give_back(allocate_here(40000));
    give_back(strdup("a word"));
    std::string* string = of<std::string*(const char*)>(library, "plugin_string")("a text that is too long for the object itself");
    puts(string->c_str());
    delete string;
  } else {
    give_back(text("some text"));
  }
  void* context = nullptr;
  printf("%d\\n", cuInit(0));
  printf("%d\\n", cuDevicePrimaryCtxRetain(&context, 0));
  printf("%d\\n", cuCtxSetCurrent(context));
  auto* allocate = of<int(unsigned long long*, size_t)>(library, "plugin_alloc");
  auto* release = of<int(unsigned long long)>(library, "plugin_release");
  for (int i = 0; i < 50; ++i) {
    unsigned long long block = 0;
    const int allocated = allocate(&block, 1000 + 100 * i), freed = release(block);
    if (i % 10 == 0) printf("%d %d\\n", allocated, freed);
  }
  return 0;
}
"""
DEEP_PYTHON = """
import os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
import array, ctypes, decimal, json, math, random, struct, unicodedata, zlib
text = json.dumps([str(decimal.Decimal(i) / 7) for i in range(2000)])
print(len(zlib.compress(text.encode())), len(json.loads(text)), array.array("d", range(10000))[-1])
"""
DEEP_ALLOCATIONS = """
import ctypes, os, sys
flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
plugin = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
import array, decimal, zlib
sys.setdlopenflags(flags)
driver, program = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
for function in (plugin.plugin_text, program.malloc):
    function.restype = ctypes.c_void_p
for function in (plugin.plugin_free, program.free, plugin.plugin_release):
    function.argtypes = [ctypes.c_uint64]
context = ctypes.c_void_p()
print(driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context))
for i in range(50):
    block = ctypes.c_uint64()
    print(plugin.plugin_alloc(ctypes.byref(block), ctypes.c_size_t(1000 * i + 1)), plugin.plugin_release(block))
    text = plugin.plugin_text(b"some text")
    print(ctypes.string_at(text))
    program.free(text)
    plugin.plugin_free(program.malloc(ctypes.c_size_t(40000)))
print(len(zlib.compress(bytes(100000))), decimal.Decimal(1) / 7, array.array("d", range(9)))
"""


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, words in (("plugin.so", ()), ("symbolic.so", ("-Wl,-Bsymbolic", "-Wl,-z,now", "-fno-plt")),
                            ("mixed.so", ("-Wl,-z,noseparate-code", "-Wl,-z,lazy", "-Wl,--hash-style=sysv"))):
            cls.build(PLUGIN, "-shared", "-fPIC", *words, "-o", cls.folder / name)
        cls.program = cls.folder / "program"
        cls.build(PROGRAM, "-o", cls.program)
        cls.fixed = cls.folder / "fixed"
        cls.build(PROGRAM, "-fno-pie", "-no-pie", "-o", cls.fixed)

    @staticmethod
    def build(source, *words):
        command = ["c++", "-x", "c++", "-", "-w", *words, f"-L{BUILD / 'sim'}", "-l:libcuda.so.1", "-ldl"]
        subprocess.run(command, input=source, text=True, check=True)

    def run_it(self, *command, **env):
        done = subprocess.run(command, env=CLEAN | env, capture_output=True, text=True, timeout=HANGS_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def launched(self, *words):
        """What the program printed, which is as without Cistern, and its requests that Cistern served."""
        report = self.folder / "report"
        report.unlink(missing_ok=True)
        command = (ROOT / "scripts" / "cistern", "--home", BUILD, "run", *words[0], "--report", "json", "--report-file", report,
                   "--log-file", "/dev/null", "--", *words[1:])
        alone = self.run_it(*words[1:])
        self.assertEqual((alone[0], alone[2]), (0, ""), alone)
        self.assertEqual(self.run_it(*command), alone)
        devices = json.loads(report.read_text(encoding="utf-8"))["devices"] if report.exists() else []
        return sum(device["allocations"] for device in devices)

    def test_a_library_that_binds_deep_is_served(self):
        for plugin in ("plugin.so", "symbolic.so", "mixed.so"):
            for host in ("on", "off"):
                served = self.launched(("--audit", "--host", host), self.program, self.folder / plugin, "deep")
                self.assertEqual(served, 50, (plugin, host))

    def test_so_it_is_in_a_program_at_a_fixed_address(self):
        for host in ("on", "off"):
            self.assertEqual(self.launched(("--audit", "--host", host), self.fixed, self.folder / "plugin.so", "deep"), 50, host)

    def test_without_it_such_a_library_goes_past_cistern(self):
        self.assertEqual(self.launched(("--host", "off"), self.program, self.folder / "plugin.so", "deep"), 0)

    def test_one_that_binds_to_itself_is_served_both_ways(self):
        for audit in (("--audit",), ()):
            self.assertEqual(self.launched(audit, self.program, self.folder / "symbolic.so", "plain"), 50)

    def test_another_namespace_keeps_its_own_driver(self):
        for audit in (("--audit",), ()):
            self.assertEqual(self.launched(audit, self.program, self.folder / "plugin.so", "apart"), 0)

    def test_programs_that_need_no_audit_are_served_as_ever(self):
        for program in ("driver_api_lazy", "driver_api_now", "vector_add_shared", "vector_add_static"):
            plain, audited = (self.launched(audit, BUILD / "programs" / program) for audit in ((), ("--audit",)))
            self.assertGreater(audited, 0)
            self.assertEqual(audited, plain)

    def test_threads_with_work_in_flight_whose_libraries_take_all_routes(self):
        for threads, rounds in ((1, 40), (8, 20), (64, 4)):
            served = self.launched(("--audit",), BUILD / "programs" / "routes_lazy", str(threads), str(rounds), "crossed")
            self.assertEqual(served, 2 * threads * rounds)

    def test_a_python_that_opens_all_deep_and_allocates(self):
        """As Taichi does on import. What such a module gave out is freed by the program, and the reverse."""
        words = (sys.executable, "-c", DEEP_ALLOCATIONS, self.folder / "plugin.so")
        self.assertEqual(self.launched(("--audit",), *words), 50)
        self.assertEqual(self.launched(("--host", "off"), *words), 0)

    def test_a_python_whose_modules_bind_deep(self):
        self.launched(("--audit",), sys.executable, "-c", DEEP_PYTHON)

    def test_a_bare_preload_with_it(self):
        env = {"LD_PRELOAD": str(BUILD / "libcistern.so"), "LD_AUDIT": str(BUILD / "libcistern-audit.so"),
               "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=4096"}
        words = (self.program, self.folder / "plugin.so", "deep")
        self.assertEqual(self.run_it(*words, **env), self.run_it(*words))

    def test_it_needs_no_library(self):
        text = subprocess.run(("readelf", "-dW", BUILD / "libcistern-audit.so"), check=True, capture_output=True, text=True).stdout
        self.assertNotIn("NEEDED", text)
        self.assertIn("SYMTAB", text)


if __name__ == "__main__":
    if not (BUILD / "libcistern.so").exists() or (BUILD / "libcistern.so").is_symlink():
        print("skipped: no libcistern.so that serves malloc in this build")
        sys.exit(77)
    unittest.main()
