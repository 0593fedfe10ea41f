#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with more rights than the user who starts it (AT_SECURE): neither object reads a setting,
writes a file or opens a socket there, and malloc serves. The loader takes nothing from LD_PRELOAD there. So
one program is linked with the object, and another one has it from an /etc/ld.so.preload that it alone sees.
Skipped where the test may not make such a program."""

import ctypes
import os
import shutil
import struct
import subprocess
import unittest

import life

STRANGER = 65_432  # a user of this machine, and nobody's
CAPABILITY = "security.capability"
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # capabilities(7): effective at once
# How a program gains rights: its mode, and its file capabilities.
WAYS = {"set-user-ID": (0o4755, None), "set-group-ID": (0o2755, None), "capabilities": (0o755, NET_RAW)}
NEW_MOUNTS, BIND, RECURSIVE, PRIVATE = 0x20000, 4096, 16384, 1 << 18  # sched.h, sys/mount.h
IN_OPEN, IN_NONBLOCK = 0x20, os.O_NONBLOCK
libc = ctypes.CDLL(None, use_errno=True)
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
        self.plain = self.compiled("plain", "libcuda.so.1")
        self.linked = self.compiled("linked", self.preloaded, "libcuda.so.1")
        self.precious = self.folder / "precious"
        self.precious.write_text("root:secret-of-root\n")
        self.precious.chmod(0o600)
        self.work = self.folder / "work"

    def compiled(self, name, *libraries):
        program = self.folder / name
        subprocess.run(["cc", "-O1", "-fno-builtin", "-x", "c", "-", "-o", program, "-Wl,--no-as-needed", "-x", "none",
                        *(self.folder / library for library in libraries), f"-Wl,-rpath,{self.folder}"],
                       input=PROGRAM, text=True, check=True)
        return program

    def with_rights(self, program, way):
        """The program, which gains rights that way; None: none."""
        mode, capabilities = WAYS[way] if way else (0o755, None)
        program.chmod(mode)
        if CAPABILITY in os.listxattr(program):
            os.removexattr(program, CAPABILITY)
        if capabilities:
            try:
                os.setxattr(program, CAPABILITY, capabilities)
            except OSError as error:
                self.skipTest(f"no file has capabilities here: {error}")
        return program

    def become_stranger(self, preloaded):
        """In the child. The folder /etc is another one for it, if it has an object from there."""
        if preloaded and (libc.unshare(NEW_MOUNTS) or libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None) or
                          libc.mount(os.fsencode(self.folder / "etc"), b"/etc", None, BIND, None)):
            os._exit(77)
        os.setgroups([])
        os.setgid(STRANGER)
        os.setuid(STRANGER)

    def end_of(self, way, program=None, preloaded=False, **settings):
        """How the program ends for a stranger in an empty folder that everybody may write to, and what it leaves there."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.work.chmod(0o777)
        if preloaded:
            (self.folder / "etc").mkdir(exist_ok=True)
            shutil.copy("/etc/ld.so.cache", self.folder / "etc")
            (self.folder / "etc" / "ld.so.preload").write_text(f"{self.folder / self.preloaded}\n")
        process = subprocess.run([self.with_rights(program or self.linked, way)], cwd=self.work, capture_output=True,
                                 env={"PATH": os.environ["PATH"]} | settings, text=True, check=False,
                                 preexec_fn=lambda: self.become_stranger(preloaded), timeout=life.HANGS_S)
        if process.returncode == 77:
            self.skipTest("this system gives no process an /etc of its own")
        if way and "more rights 0" in process.stdout:
            self.skipTest("programs gain no rights here (nosuid, or no_new_privs)")
        return process, sorted(os.listdir(self.work))

    def hostile(self):
        return ({}, ASKED, {"CISTERN_CONFIG": str(self.precious)}, {"CISTERN_POOL": "off"} | ASKED,
                {"CISTERN_POOL": "no word", "CISTERN_ON_ERROR": "abort"},
                {"CISTERN_FREE_IDLE_MEMORY": "true", "FLAGS_free_idle_memory": "true", "FLAGS_use_pinned_memory": "true",
                 "CISTERN_REPORT": "text", "LD_PRELOAD": str(self.folder / self.preloaded)})

    def does_nothing(self, program, preloaded):
        for way in WAYS:
            for settings in self.hostile():
                with self.subTest(way=way, settings=settings):
                    process, files = self.end_of(way, program, preloaded, **settings)
                    self.assertEqual((process.returncode, process.stderr, files), (0, "", []))
                    self.assertEqual(process.stdout, "more rights 1, failed 0, sockets 0, tool 0\n")

    def test_it_does_nothing(self):
        self.does_nothing(self.linked, preloaded=False)

    def test_it_does_nothing_where_each_program_has_it(self):
        self.does_nothing(self.plain, preloaded=True)

    def opened(self, file, way, **settings):
        """Whether the program opened a file."""
        events = libc.inotify_init1(IN_NONBLOCK)
        self.addCleanup(os.close, events)
        self.assertGreaterEqual(libc.inotify_add_watch(events, os.fsencode(file), IN_OPEN), 0)
        self.end_of(way, **settings)
        try:
            return len(os.read(events, 4096)) > 0
        except BlockingIOError:
            return False

    def test_no_file_of_settings_is_opened(self):
        settings = self.folder / "settings"
        settings.write_text("CISTERN_LOG=debug\n")
        settings.chmod(0o644)
        for way in WAYS:
            self.assertFalse(self.opened(settings, way, CISTERN_CONFIG=str(settings)), way)
        self.assertTrue(self.opened(settings, None, CISTERN_CONFIG=str(settings)))

    def test_a_file_of_the_programs_own_user_is_not_written(self):
        for way in WAYS:
            for setting in ("CISTERN_REPORT_FILE", "CISTERN_LOG_FILE", "CISTERN_RECORD"):
                self.assertFalse(self.opened(self.precious, way, **ASKED | {setting: str(self.precious)}), (way, setting))
                self.assertEqual(self.precious.read_text(), "root:secret-of-root\n")

    def test_without_these_rights_it_does_what_it_is_asked(self):
        for program, preloaded in ((self.linked, False), (self.plain, True)):
            process, files = self.end_of(None, program, preloaded, **ASKED)
            self.assertEqual(files, ["log", "recording", "report"])
            self.assertIn("more rights 0, failed 0, sockets 1, tool 1\n", process.stdout)
        process, files = self.end_of(None, CISTERN_POOL="no word", CISTERN_ON_ERROR="abort")
        self.assertEqual(process.returncode, 78)


class SecureHost(Secure):
    preloaded = "libcistern.so"

    def setUp(self):
        super().setUp()
        if not self.serves_malloc():
            self.skipTest("malloc is not served")


if __name__ == "__main__":
    life.main()
