#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make`, scripts/deps and `make install` say and do where something of the machine is in the way."""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

import home

BUILD = home.built()
NOBODY = 65534
TOOLS = ("bash", "env", "sort", "head", "id", "grep", "cat", "sh", "make", "sed", "mkdir", "nproc", "expr", "echo", "dirname")


class Folder(unittest.TestCase):
    """Each test has a folder with a PATH of its own: next to nothing, and stand-ins."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-build-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "bin"
        self.path.mkdir()
        for tool in TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool))

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def ran(self, *command, cwd=None, user=None, **env):
        clean = {"PATH": str(self.path), **env}
        return subprocess.run([str(word) for word in command], cwd=cwd or self.folder, env=clean, capture_output=True,
                              text=True, check=False, user=user)


class Deps(Folder):
    def deps(self, *words, root=home.ROOT, **env):
        return self.ran(root / "scripts" / "deps", "--check", *words, **env)

    def test_a_path_with_a_blank_or_colon_is_refused_before_anything_is_looked_for(self):
        for name in ("with blank", "with:colon"):
            root = self.folder / name
            shutil.copytree(home.ROOT / "scripts", root / "scripts")
            result = self.deps(root=root)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (1, "", 1), result.stderr)
            self.assertIn(f'value seen "{root}"', result.stderr)

    def test_a_folder_without_the_toolkit_is_said(self):
        self.script(self.folder / "cuda" / "bin" / "nvcc", "")
        right, wrong = str(self.folder / "cuda"), str(self.folder / "nowhere")
        for name, other in (("CUDA_HOME", "CUDA_PATH"), ("CUDA_PATH", "CUDA_HOME")):
            said = f"deps: no bin/nvcc in {name}={wrong}: the toolkit is looked for elsewhere\n"
            self.assertEqual(self.deps(**{name: wrong, other: right}).stderr.count(said), 1)
            self.assertNotIn("no bin/nvcc", self.deps(**{name: right}).stderr)

    def test_libraries_are_seen_without_sbin_in_the_path(self):
        self.assertNotIn("sbin", str(self.path))
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        missing = self.deps("--for", "test").stderr.count("missing: libunwind.so.8")
        self.assertEqual(missing, 0 if "libunwind.so.8" in known else 1)


class Configure(Folder):
    """With a stand-in for cmake, which shows its words."""

    def tree(self):
        root = self.folder / "tree"
        (root / "build").mkdir(parents=True)
        (root / "scripts").mkdir()
        shutil.copy(home.ROOT / "scripts" / "configure", root / "scripts")
        self.script(self.path / "cmake", f"echo $* >{self.folder}/words")
        return root

    def configured(self, made_in):
        root = self.tree()
        if made_in is not None:
            cache = root / "build" / "release" / "CMakeCache.txt"
            cache.parent.mkdir()
            cache.write_text(f"A:STRING=b\nCMAKE_HOME_DIRECTORY:INTERNAL={made_in}\n", encoding="utf-8")
        result = self.ran(root / "scripts" / "configure", "release")
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        return result.stderr, (self.folder / "words").read_text(encoding="utf-8").split()

    def test_a_moved_build_folder_is_begun_anew_and_that_is_said(self):
        said, words = self.configured("/nowhere/else")
        self.assertEqual(said, "make: build/release was made in /nowhere/else: it is built anew\n")
        self.assertIn("--fresh", words)

    def test_one_that_is_where_it_was_is_used(self):
        (self.folder / "by link").symlink_to(self.folder)
        said, words = self.configured(self.folder / "by link" / "tree")
        self.assertEqual(said, "")
        self.assertNotIn("--fresh", words)

    def test_a_first_build_says_nothing(self):
        said, words = self.configured(None)
        self.assertEqual(said, "")
        self.assertIn("release", words)

    def test_another_users_build_folder_is_not_written_to(self):
        root = self.tree()
        for path in (self.folder, *self.folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o555)
        self.addCleanup(lambda: [path.chmod(0o755) for path in (self.folder, self.path, root, *root.rglob("*"))])
        other = {"user": NOBODY} if os.geteuid() == 0 else {}
        try:
            result = self.ran(root / "scripts" / "configure", "release", **other)
        except PermissionError:
            self.skipTest(f"another user cannot enter the folder for temporary files, {self.folder}")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        said = f"^make: no permission to write to {root}/build: clone .*, and make there$"
        self.assertRegex(result.stderr.splitlines()[0], said)
        self.assertFalse((self.folder / "words").exists())


class Install(Folder):
    def test_all_may_read_it_whatever_the_umask(self):
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BUILD)
        shutil.copy(home.ROOT / "Makefile", self.folder)
        prefix = self.folder / "new" / "prefix"
        env = {name: value for name, value in os.environ.items() if name not in ("DESTDIR", "MAKEFLAGS")}
        subprocess.run(["make", "--old-file=all", "install", "PRESET=release", f"PREFIX={prefix}"], cwd=self.folder,
                       env=env, check=True, capture_output=True, umask=0o077)
        found = [prefix.parent, prefix, *prefix.rglob("*")]
        self.assertIn(prefix / "lib/cistern/sim/libcuda.so.1", found)
        for path in found:
            if not path.is_symlink():
                program = path.is_relative_to(prefix / "bin") or path.is_relative_to(prefix / "libexec")
                wanted = 0o555 if path.is_dir() or program else 0o444
                mode = stat.S_IMODE(path.stat().st_mode)
                self.assertEqual(mode & wanted, wanted, f"{path}: {mode:o}")


if __name__ == "__main__":
    unittest.main()
