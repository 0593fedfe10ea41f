#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that doctor, check and inspect are asked about are read, whatever they are: nothing of them runs, and time,
memory and output go by their size. Those of an ELF reader on its own are in tests/fuzz/elf_fuzz.cc."""

import os
import pathlib
import platform
import random
import resource
import stat
import struct
import subprocess
import unittest

import home

MAIN = "int main(void) { return 0; }"
MARK = '#include <fcntl.h>\n__attribute__((constructor)) static void mark(void) { open("%s", O_CREAT, 0600); }\n'
LOADER = """
#include <asm/unistd.h>
#include <fcntl.h>
void _start(void) {
  register long a __asm__("rdi") = AT_FDCWD, c __asm__("rdx") = O_CREAT, d __asm__("r10") = 0600, n __asm__("rax") = __NR_openat;
  register const char* b __asm__("rsi") = "%s";
  __asm__ volatile("syscall" : "+r"(n) : "r"(a), "r"(b), "r"(c), "r"(d) : "rcx", "r11", "memory");
  a = 0, n = __NR_exit;
  __asm__ volatile("syscall" : : "r"(n), "r"(a));
}
"""
AUDIT = MARK + "unsigned la_version(unsigned v) { mark(); return v; }\n"


def with_needed(count, size):
    """A program of `size` bytes whose dynamic table names `count` libraries, all by the same text without an end."""
    table = 64 + 2 * 56
    text = table + 16 * (count + 2)
    dynamic = struct.pack("<QQ", 5, text) + struct.pack("<QQ", 1, 0) * count + bytes(16)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 1)
    segments += struct.pack("<IIQQQQQQ", 2, 4, table, table, 0, len(dynamic), len(dynamic), 1)
    content = header + segments + dynamic
    return content + b"x" * (size - len(content))


def with_names(names):
    """A library that needs those."""
    table, texts, offsets = 64 + 2 * 56, b"\0", []
    for name in names:
        offsets.append(len(texts))
        texts += name.encode() + b"\0"
    text = table + 16 * (len(names) + 2)
    dynamic = struct.pack("<QQ", 5, text) + b"".join(struct.pack("<QQ", 1, offset) for offset in offsets) + bytes(16)
    size = text + len(texts)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 1)
    segments += struct.pack("<IIQQQQQQ", 2, 4, table, table, 0, len(dynamic), len(dynamic), 1)
    return header + segments + dynamic + texts


class Execution(home.LauncherTest):
    def setUp(self):
        super().setUp()
        self.mark = self.folder / "mark"

    def compiled(self, name, source, *options):
        path = self.folder / name
        subprocess.run(["cc", "-x", "c", "-", "-x", "none", "-o", path, *options], input=source, text=True, check=True)
        return path

    def nothing_runs(self, path):
        for words in (("doctor", "--sim"), ("run", "--print-env")):
            result = self.cistern(*words, path, cwd=self.folder)
            self.assertEqual(result.stderr.count("\n"), result.returncode == 2, result.stderr)
        subprocess.run([self.home / "cistern-config", "inspect", path], capture_output=True, check=True)
        self.assertFalse(self.mark.exists())

    @unittest.skipIf(platform.machine() != "x86_64", "the loader of this test is written for x86-64")
    def test_the_loader_that_a_program_asks_for_is_not_run(self):
        loader = self.compiled("loader", LOADER % self.mark, "-static", "-nostdlib", "-fno-stack-protector")
        program = self.compiled("program", MAIN, f"-Wl,--dynamic-linker={loader}")
        subprocess.run([program], check=False)
        self.mark.unlink()  # the kernel does run it
        self.nothing_runs(program)

    def test_what_a_program_or_its_library_does_at_its_start_is_not_done(self):
        library = self.compiled("library.so", MARK % self.mark, "-shared", "-fPIC")
        self.nothing_runs(library)
        self.nothing_runs(self.compiled("program", MARK % self.mark + MAIN, "-Wl,--no-as-needed", library))

    def test_a_library_that_a_program_names_for_audit_is_not_run(self):
        audit = self.compiled("audit.so", AUDIT % self.mark, "-shared", "-fPIC")
        for option in ("--audit", "--depaudit"):
            program = self.compiled("program", MAIN, f"-Wl,{option}={audit}")
            subprocess.run([program], check=True)
            self.mark.unlink()  # the loader does so where it is started
            self.nothing_runs(program)
            library = self.compiled("linked.so", MAIN, f"-Wl,{option}={audit}", "-shared", "-fPIC")
            self.nothing_runs(library)
            self.nothing_runs(self.compiled("program", MAIN, "-Wl,--no-as-needed", library))

    def test_a_program_says_nothing_of_what_a_shell_preloads(self):
        """The name of its sanitizer's runtime goes first into LD_PRELOAD, which holds a list of any paths."""
        def preloaded(name):
            library = self.compiled("runtime.so", "int runtime;", "-shared", "-fPIC", f"-Wl,-soname,{name}")
            program = self.compiled("program", MAIN, "-Wl,--no-as-needed", library)
            result = self.cistern("run", "--print-env", program, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertNotIn("GLIBC_TUNABLES", result.stdout)
            return next(line for line in result.stdout.splitlines() if line.startswith("export LD_PRELOAD="))
        plain = preloaded("libother.so.1")
        evil = self.compiled("evil.so", MARK % self.mark, "-shared", "-fPIC")
        for between in (":", " ", "/../", ":\n", "\naudited\n", "$ORIGIN:", "\t", ";"):
            self.assertEqual(preloaded(f"libasan.so.8{between}{evil}"), plain, between)
        self.assertIn("='libasan.so.8:", preloaded("libasan.so.8"))
        self.assertIn("='libclang_rt.tsan-x86_64.so:", preloaded("libclang_rt.tsan-x86_64.so"))

    def test_no_process_is_started_for_it(self):
        """Not even a loader that only lists: a file can have it map code over its own."""
        names = "fork", "vfork", "posix_spawn", "posix_spawnp", "execve", "execv", "execvp", "system", "popen"
        source = "#include <fcntl.h>\n" + "".join(f'long {name}() {{ open("{self.mark}", O_CREAT, 0600); return -1; }}\n' for name in names)
        noticed = {"LD_PRELOAD": str(self.compiled("noticed.so", source, "-shared", "-fPIC", "-fno-builtin", "-w"))}
        subprocess.run(["/bin/sh", "-c", "/bin/true; :"], env=noticed, check=False, stderr=subprocess.DEVNULL)
        self.mark.unlink()  # it does notice
        program = self.compiled("program", MAIN)
        command = [self.home / "cistern-config", "doctor", "--object", self.home / "libcistern.so", program]
        result = subprocess.run(command, env=noticed, capture_output=True, text=True, check=False)
        self.assertIn("\nprogram ", result.stdout)
        self.assertFalse(self.mark.exists())

    def test_libraries_are_found_where_the_loader_finds_them(self):
        lower = self.compiled("liblower.so", "int lower;", "-shared", "-fPIC", "-Wl,-soname,liblower.so")
        (self.folder / "sub").mkdir()
        for tags, found in (("--disable-new-dtags", True), ("--enable-new-dtags", False)):
            # Of the two only DT_RPATH counts for what libraries need in turn.
            upper = self.compiled("sub/libupper.so", "extern int lower; int upper(void) { return lower; }", "-shared", "-fPIC",
                                  "-Wl,-soname,libupper.so", lower)
            program = self.compiled("program", "int upper(void); int main(void) { return upper(); }", upper, "-Wl,--allow-shlib-undefined",
                                    f"-Wl,{tags},-rpath,$ORIGIN/sub:$ORIGIN", f"-Wl,-rpath-link,{self.folder}")
            self.assertEqual(subprocess.run([program], stderr=subprocess.DEVNULL, check=False).returncode == 0, found)
            for env, missing in (({}, not found), ({"LD_LIBRARY_PATH": str(self.folder)}, False)):
                told = self.cistern("doctor", "--sim", program, env=env).stdout
                self.assertEqual("a library is not found: liblower.so" in told, missing, told)


class Bounds(home.LauncherTest):
    def tool(self, *words):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))

        command = [self.home / "cistern-config", *words]
        result = subprocess.run(command, capture_output=True, check=False, preexec_fn=limit, timeout=180)
        self.assertIn(result.returncode, (0, 1, 2, 126, 127), result.stderr)
        return result

    def test_thousands_of_libraries_with_one_endless_name(self):
        size = 1 << 20
        path = self.file("program", with_needed(20_000, size))
        self.assertLess(len(self.tool("inspect", path).stdout), 2 * size)
        self.tool("check", "--object", self.home / "libcistern.so", "--program", path)
        self.tool("doctor", "--object", self.home / "libcistern.so", path)

    def test_thousands_of_libraries_with_names_of_their_own(self):
        path = self.file("lib.so", with_names([f"{number}" + 60 * "x" for number in range(16_000)]))
        self.assertIn(b"\nverdict ", self.tool("doctor", "--object", self.home / "libcistern.so", path).stdout)

    def test_only_regular_files_are_opened(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        path = self.file("lib.so", with_names([str(pipe), "/dev/zero", "/proc/self/fd/1"]))
        told = self.tool("doctor", "--object", self.home / "libcistern.so", path).stdout
        self.assertIn(f"not found: {pipe} /dev/zero /proc/self/fd/1;".encode(), told)

    def test_damage_anywhere(self):
        program = self.folder / "program"
        source = "#include <math.h>\n" + MAIN
        subprocess.run(["cc", "-x", "c", "-", "-o", program, "-Wl,--no-as-needed", "-lm"], input=source, text=True, check=True)
        whole, seed = program.read_bytes(), random.randrange(2**32)
        print("seed", seed)
        choice = random.Random(seed)
        ends = [0, 64, 1024, len(whole)]
        for _ in range(120):
            data = bytearray(whole)
            for _ in range(choice.randrange(1, 6)):
                data[choice.randrange(choice.choice(ends[1:]))] = choice.choice((0, 1, 0x7F, 0x80, 0xFF, choice.randrange(256)))
            if choice.randrange(8) == 0:
                del data[choice.randrange(len(data)):]
            path = self.file(choice.choice(("program", "lib.so")), bytes(data))
            result = self.tool("doctor", "--object", self.home / "libcistern.so", path)
            self.assertEqual(result.stderr, b"")
            self.assertIn(b"\nverdict ", result.stdout)
            self.assertLess(len(result.stdout), 4096 + 2 * len(data))
            self.assertNotRegex(result.stdout, rb"[\x00-\x09\x0b-\x1f\x7f]")


class Links(home.LauncherTest):
    def test_a_plan_is_written_through_none(self):
        table, out = self.file("lives.csv", "id,lower,upper,size\na,0,2,4\n"), self.folder / "plan"
        other = pathlib.Path(self.file("other", "other"))
        out.symlink_to(other)
        self.assertEqual(self.cistern("plan", table, "-o", out).returncode, 0)
        self.assertEqual(other.read_bytes(), b"other")
        self.assertFalse(out.is_symlink())
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o600)

    def test_nothing_else_in_the_folder_is_touched(self):
        table = self.file("lives.csv", "id,lower,upper,size\na,0,2,4\n")
        (self.folder / "plan.new").mkdir()
        kept = pathlib.Path(self.file("picture.new", "kept"))
        before = {path.name for path in self.folder.iterdir()} | {"plan", "picture"}
        result = self.cistern("plan", table, "-o", self.folder / "plan", "--svg", self.folder / "picture")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(kept.read_text(encoding="utf-8"), "kept")
        self.assertEqual({path.name for path in self.folder.iterdir()}, before)

    def test_a_plan_is_written_into_no_device_and_no_pipe_of_others(self):
        table, pipe, link = self.file("lives.csv", "id,lower,upper,size\na,0,2,4\n"), self.folder / "pipe", self.folder / "link"
        os.mkfifo(pipe)
        for way in ("-o", "--svg"):
            result = self.cistern("plan", table, *(("-o", self.folder / "plan") if way == "--svg" else ()), way, pipe)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))
        link.symlink_to(pipe)
        self.assertEqual(self.cistern("plan", table, "-o", link).returncode, 0)
        self.assertFalse(link.is_symlink())
        self.assertEqual(self.cistern("plan", table, "-o", "/dev/null").returncode, 0)
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())


class Ends(home.LauncherTest):
    def test_what_has_no_end_is_not_read(self):
        sparse = self.folder / "sparse"
        with open(sparse, "wb") as file:
            file.truncate(9 << 30)
        for path in ("/dev/zero", sparse):
            for command in (("trace", path), ("plan", path, "-o", self.folder / "plan")):
                result = self.cistern(*command)
                self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)


if __name__ == "__main__":
    home.main()
