# SPDX-License-Identifier: Apache-2.0
"""A copy of the tree under build/mutants/ in which mutants are built, one at a time.

It is kept from run to run. A clean copy of its build folder is kept beside it: after each mutant the
few files that the mutant's build changed are put back from there, which is faster than building them
once more, and leaves the build folder as if the mutant had never been.
"""

import contextlib
import fcntl
import filecmp
import os
import re
import shutil
import subprocess
import time

import catalogue

# Without link-time optimisation a mutant is linked in a second. A variable that a mutant leaves
# unused is no reason not to try it: -w, since the tree's own flags make warnings errors.
CONFIGURE = ("cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -w",
             "-DCISTERN_TESTS=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
OF_CTEST = ("Testing",)
# Not that it was ended, or that there was no room.
REFUSES = re.compile(r"[0-9]: error: |undefined reference|multiple definition|relocation .* against")


class BuildFails(Exception):
    """The message names the log."""


class DoesNotCompile(BuildFails):
    """A compiler or linker says so."""


class WorkTree:
    def __init__(self, root=catalogue.ROOT):
        self.root, self.home = root, root / "build" / "mutants"
        self.folder, self.build_folder = self.home / "tree", self.home / "tree" / "build"
        self.clean_folder, self.log = self.home / "clean", self.home / "log"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = (self.home / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BuildFails(f"another run works in {self.home}") from None

    def prepare(self):
        """The tree as it is now, built."""
        self.log.write_text("", encoding="utf-8")
        if self.clean_folder.exists():
            mirror(self.clean_folder, self.build_folder)
        self.copy_sources()
        self.call(*CONFIGURE, *generator(self.build_folder))
        self.build("all")
        mirror(self.build_folder, self.clean_folder)

    def copy_sources(self):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.root, check=True,
                                capture_output=True, text=True).stdout.splitlines()
        wanted = {name for name in listed if (self.root / name).is_file()}
        there = set(files_of(self.folder, leave_out=("build",)))
        for name in there - wanted:
            (self.folder / name).unlink()
        for name in wanted:
            source, target = self.root / name, self.folder / name
            if name not in there or not filecmp.cmp(source, target, shallow=False):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            shutil.copymode(source, target)

    def build(self, targets):
        self.call("cmake", "--build", "build", "--parallel", str(os.cpu_count()), "--target", *targets.split())

    def call(self, *command):
        with self.log.open("a", encoding="utf-8") as log:
            print(time.strftime("--- %X"), *command, file=log, flush=True)
            begin = log.tell()
            done = subprocess.run(command, cwd=self.folder, stdout=log, stderr=log,
                                  stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            said = self.log.read_bytes()[begin:].decode(errors="replace")
            failure = DoesNotCompile if REFUSES.search(said) else BuildFails
            raise failure(f"{' '.join(command)} fails, see {self.log}")

    def differs(self, product):
        """Whether a file of the build folder was made anew since prepare()."""
        return stamp(self.build_folder / product) != stamp(self.clean_folder / product)

    @contextlib.contextmanager
    def holding(self, name, text, objects=()):
        """The file has this text meanwhile. Where it is known which object files are compiled from what is different,
        only those are made anew."""
        path = self.folder / name
        before, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(text, encoding="utf-8")
        if objects:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            for made in objects:
                (self.build_folder / made).unlink(missing_ok=True)
            yield
        finally:
            path.write_text(before, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            mirror(self.clean_folder, self.build_folder)


def generator(build_folder):
    """The words that tell cmake, but where the folder has one already."""
    if (build_folder / "CMakeCache.txt").exists():
        return ()
    return "-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"


def stamp(path):
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def files_of(folder, leave_out=()):
    for place, folders, names in os.walk(folder):
        if place == str(folder):
            folders[:] = [name for name in folders if name not in leave_out]
        relative = os.path.relpath(place, folder)
        yield from (os.path.normpath(os.path.join(relative, name)) for name in names)


def mirror(source, target):
    """The files of a build folder are those of another one, down to their times."""
    target.mkdir(exist_ok=True)
    wanted, there = (set(files_of(folder, OF_CTEST)) for folder in (source, target))
    for name in there - wanted:
        (target / name).unlink()
    for name in wanted:
        new, old = source / name, target / name
        if new.is_symlink() or name not in there or stamp(new) != stamp(old):
            old.parent.mkdir(parents=True, exist_ok=True)
            old.unlink(missing_ok=True)
            shutil.copy2(new, old, follow_symlinks=False)
