#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with more rights than the user who starts it (AT_SECURE): neither object reads a setting,
writes a file or opens a socket there, and malloc serves. The program is linked with the object, since
the loader takes no other from LD_PRELOAD there. Skipped where the test may not make such a program."""

import os
import shutil
import subprocess
import unittest

import life

STRANGER = 65_432  # a user of this machine, and nobody's
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(unsigned long long*, size_t);
int cuMemFree_v2(unsigned long long);
int cuIpcGetMemHandle(char*, unsigned long long);

static int is_own(unsigned long inode) {
  for (int i = 0; i < 1024; ++i) {
    char name[64], target[64] = "", wanted[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", i);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    if (readlink(name, target, sizeof target - 1) > 0 && strcmp(target, wanted) == 0) return 1;
  }
  return 0;
}

static int sockets(void) {
  FILE* all = fopen("/proc/net/unix", "r");
  char line[512];
  int count = 0;
  while (all != NULL && fgets(line, sizeof line, all) != NULL) {
    unsigned long inode;
    if (strstr(line, "cistern") != NULL && sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &inode) == 1)
      count += is_own(inode);
  }
  return count;
}

int main(void) {
  void* context = NULL;
  unsigned long long block = 0;
  char handle[64];
  int failed = cuInit(0) + cuDevicePrimaryCtxRetain(&context, 0) + cuCtxSetCurrent(context);
  failed += cuMemAlloc_v2(&block, 1000) + cuIpcGetMemHandle(handle, block);
  for (size_t bytes = 1; bytes < 10000000; bytes *= 3) {
    char* memory = malloc(bytes);
    failed += memory == NULL;
    memset(memory, 1, bytes);
    memory = realloc(memory, bytes * 2);
    failed += memory[bytes - 1] != 1;
    free(memory);
  }
  printf("more rights %d, failed %d, sockets %d, tool %d\n", getauxval(AT_SECURE) != 0, failed, sockets(),
         getenv("NVTX_INJECTION64_PATH") != NULL);
  return cuMemFree_v2(block);
}
"""
ASKED = {"CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": "report", "CISTERN_LOG": "debug",
         "CISTERN_LOG_FILE": "log", "CISTERN_RECORD": "recording", "CISTERN_SITES": "stacks",
         "CISTERN_MALLOC_CONF": "stats_print:true", "MALLOC_CONF": "stats_print:true"}


@unittest.skipIf(os.getuid() != 0, "only root can make a program of another user's")
class Secure(life.Life):
    def setUp(self):
        super().setUp()
        if life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"):
            self.skipTest("a sanitizer's runtime ends such a program itself")
        self.folder.chmod(0o755)
        for library in (life.build_dir / self.preloaded, life.build_dir / "sim" / "libcuda.so.1"):
            shutil.copy(library, self.folder)
        self.linked = self.folder / "linked"
        libraries = [self.folder / self.preloaded, self.folder / "libcuda.so.1"]
        subprocess.run(["cc", "-O1", "-fno-builtin", "-x", "c", "-", "-o", self.linked, "-Wl,--no-as-needed", "-x",
                        "none", *libraries, f"-Wl,-rpath,{self.folder}"], input=PROGRAM, text=True, check=True)
        self.precious = self.folder / "precious"
        self.precious.write_text("root:secret-of-root\n")
        self.precious.chmod(0o600)
        self.work = self.folder / "work"

    def end_of(self, more_rights, **settings):
        """How the program ends for a stranger in an empty folder that everybody may write to."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.work.chmod(0o777)
        self.linked.chmod(0o4755 if more_rights else 0o755)
        environment = {"PATH": os.environ["PATH"]} | settings
        process = subprocess.run([self.linked], cwd=self.work, env=environment, user=STRANGER, group=STRANGER,
                                 extra_groups=[], capture_output=True, text=True, check=False, timeout=life.HANGS_S)
        if more_rights and "more rights 0" in process.stdout:
            self.skipTest("programs gain no rights here (nosuid, or no_new_privs)")
        return process, sorted(os.listdir(self.work))

    def test_it_does_nothing(self):
        for settings in ({}, ASKED, {"CISTERN_CONFIG": str(self.precious)}, {"CISTERN_POOL": "off"} | ASKED,
                         {"CISTERN_POOL": "no word", "CISTERN_ON_ERROR": "abort"},
                         {"CISTERN_FREE_IDLE_MEMORY": "true", "FLAGS_free_idle_memory": "true",
                          "FLAGS_use_pinned_memory": "true", "CISTERN_REPORT": "text"}):
            process, files = self.end_of(True, **settings)
            self.assertEqual((process.returncode, process.stderr, files), (0, "", []), settings)
            self.assertEqual(process.stdout, "more rights 1, failed 0, sockets 0, tool 0\n", settings)

    def test_a_file_of_the_programs_own_user_is_not_written(self):
        for setting in ("CISTERN_REPORT_FILE", "CISTERN_LOG_FILE", "CISTERN_RECORD"):
            self.end_of(True, **ASKED | {setting: str(self.precious)})
            self.assertEqual(self.precious.read_text(), "root:secret-of-root\n")

    def test_without_these_rights_it_does_what_it_is_asked(self):
        process, files = self.end_of(False, **ASKED)
        self.assertEqual(files, ["log", "recording", "report"])
        self.assertIn("more rights 0, failed 0, sockets 1, tool 1\n", process.stdout)
        process, files = self.end_of(False, CISTERN_POOL="no word", CISTERN_ON_ERROR="abort")
        self.assertEqual(process.returncode, 78)


class SecureHost(Secure):
    preloaded = "libcistern.so"

    def setUp(self):
        super().setUp()
        if not self.serves_malloc():
            self.skipTest("malloc is not served")


if __name__ == "__main__":
    life.main()
