#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where reports, logs and recordings lie in a folder in which other users make names, too: no link, no
file of another user's, no device and no named pipe is written through such a name, and what is written
only its user may read. What was there stays as it was, and the program notices nothing."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import life

OWN, OTHER, GROUP = 65_432, 65_433, 65_434  # users and a group of this machine that are nobody's
SETTINGS = {
    "report": {"CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": "shared/name"},
    "log": {"CISTERN_LOG": "info", "CISTERN_LOG_FILE": "shared/name"},
    "recording": {"CISTERN_RECORD": "shared/name"},
}
FOLDERS = {"sticky": (0o1777, 0), "writable by all": (0o777, 0), "writable by the group": (0o2770, GROUP)}


def contents(path):
    """What may not change: kind, owner, mode and bytes of a name."""
    there = os.lstat(path)
    kept = (there.st_mode, there.st_uid, there.st_rdev)
    return (*kept, path.read_bytes()) if stat.S_ISREG(there.st_mode) else kept


class OwnFiles(life.Life):
    """Of the one user that there is, in folders of his."""

    user, other = os.getuid(), None

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)
        if self.user != os.getuid() and life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"):
            self.skipTest("sanitizers look at files of their own")
        entered = ("test", "-x", self.program("endings_lazy"))
        if self.user != os.getuid() and subprocess.run(entered, user=self.user, check=False).returncode != 0:
            self.skipTest(f"another user cannot enter the folder of the build, {life.build_dir}")

    def place(self, mode=0o755, group=None):
        """A fresh folder of the process, in which `shared` is where names are made."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        shared = folder / "shared"
        shared.mkdir()
        for path in (folder, shared):
            self.give(path, self.user)
        if group is not None:
            os.chown(shared, 0 if os.getuid() == 0 else -1, group if os.getuid() == 0 else -1)
        shared.chmod(mode)
        return folder, shared

    def give(self, path, user):
        if os.getuid() == 0:
            os.chown(path, user, -1, follow_symlinks=False)

    def victim(self, folder, user=None):
        path = folder / "victim"
        path.write_text("precious\n")
        path.chmod(0o644)
        self.give(path, self.user if user is None else user)
        return path

    def run_in(self, folder, settings, err=subprocess.PIPE):
        """A program there, as the user; stderr."""
        environment = {name: value for name, value in self.environment(True).items() if not name.startswith("CISTERN_")}
        as_user = {"user": self.user, "group": self.user, "extra_groups": [GROUP]} if os.getuid() == 0 else {}
        process = subprocess.run([self.program("endings_lazy"), "exit"], cwd=folder, env=environment | settings,
                                 stdout=subprocess.PIPE, stderr=err, text=True, check=False, timeout=life.HANGS_S, **as_user)
        self.assertEqual(process.returncode, 6, process.stderr)  # its own
        return process.stderr

    def refused(self, make, what, user=None, folders=None):
        """`make(name, victim)` makes a name that none of the three may be written through."""
        for kind, settings in SETTINGS.items():
            for where, (mode, group) in (folders or FOLDERS).items():
                with self.subTest(what=what, kind=kind, folder=where):
                    folder, shared = self.place(mode, group)
                    victim = self.victim(folder, user)
                    make(shared / "name", victim)
                    before = [contents(victim), contents(shared / "name")]
                    said = self.run_in(folder, {"CISTERN_LOG": "warn"} | settings)
                    self.assertEqual([contents(victim), contents(shared / "name")], before)
                    self.assertEqual({path.name for path in folder.iterdir()}, {"shared", "victim"})
                    names = {path.name for path in shared.iterdir()} - {"name"}
                    # A recording that may not be written over what is there gets a name of its own.
                    self.assertTrue(all(kind == "recording" and name.startswith("name.") for name in names), names)
                    self.assertTrue(said.startswith("cistern: warn: "), said)
                    self.assertEqual(said.count("cistern: warn: "), 1, said)

    def test_what_is_written_is_its_users_alone(self):
        for kind, settings in SETTINGS.items():
            for where, (mode, group) in FOLDERS.items():
                with self.subTest(kind=kind, folder=where):
                    folder, shared = self.place(mode, group)
                    umask = os.umask(0)
                    self.addCleanup(os.umask, umask)
                    self.assertEqual(self.run_in(folder, settings), "")
                    there = os.lstat(shared / "name")
                    self.assertEqual((stat.S_IMODE(there.st_mode), there.st_uid), (0o600, self.user))
                    self.assertGreater(there.st_size, 0)

    def test_an_own_file_is_written_over_or_on(self):
        folder, shared = self.place()
        for kind in ("report", "log"):
            name = self.victim(shared)
            name.rename(shared / "name")
            self.assertEqual(self.run_in(folder, SETTINGS[kind]), "")
            text = (shared / "name").read_text()
            self.assertEqual(text.startswith("precious\n"), kind == "log")
            self.assertIn("cistern", text)

    def test_a_link_is_not_followed(self):
        self.refused(lambda name, victim: (name.symlink_to(victim), self.give(name, self.user)), "an own link")

    def test_a_link_to_nothing_makes_nothing(self):
        self.refused(lambda name, victim: name.symlink_to(victim.parent / "new"), "a dangling link")

    def test_a_second_link_to_an_own_file_is_none(self):
        self.refused(lambda name, victim: os.link(victim, name), "a hard link")

    def test_a_named_pipe_is_none(self):
        self.refused(lambda name, _: (os.mkfifo(name, 0o666), name.chmod(0o666)), "a pipe that nobody reads")

        def with_reader(name, _):
            os.mkfifo(name, 0o666)
            name.chmod(0o666)
            self.addCleanup(os.close, os.open(name, os.O_RDONLY | os.O_NONBLOCK))
        self.refused(with_reader, "a pipe that is read")

    def test_a_folder_that_an_own_link_leads_to_is_one(self):
        for kind, settings in SETTINGS.items():
            with self.subTest(kind=kind):
                folder, shared = self.place()
                shared.rename(folder / "real")
                for target in ("real", folder / "real", "./../" + folder.name + "//real"):
                    shared.unlink(missing_ok=True)
                    (folder / "real" / "name").unlink(missing_ok=True)
                    shared.symlink_to(target)
                    self.give(shared, self.user)
                    self.assertEqual(self.run_in(folder, settings), "")
                    self.assertGreater((folder / "real" / "name").stat().st_size, 0)

    def test_links_without_an_end_are_an_error(self):
        for settings in SETTINGS.values():
            folder, shared = self.place()
            shared.rmdir()
            shared.symlink_to("shared")
            self.give(shared, self.user)
            said = self.run_in(folder, {"CISTERN_LOG": "warn"} | settings)
            self.assertIn("Too many levels of symbolic links", said)

    def test_a_folder_is_no_file(self):
        for settings in SETTINGS.values():
            folder, shared = self.place()
            (shared / "name").mkdir()
            for more in ("", "/"):
                given = {name: value.replace("shared/name", "shared/name" + more) for name, value in settings.items()}
                self.assertIn("Is a directory", self.run_in(folder, {"CISTERN_LOG": "warn"} | given))

    def test_what_the_user_gave_by_descriptor_or_is_harmless_is_written(self):
        for file, said in (("/dev/null", "^$"), ("/dev/full", "No space left|^$")):
            for settings in SETTINGS.values():
                given = {name: value.replace("shared/name", file) for name, value in settings.items()}
                folder, _ = self.place()
                self.assertRegex(self.run_in(folder, {"CISTERN_LOG": "warn"} | given), said)
        for file in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            for kind in ("report", "log"):
                given = {name: value.replace("shared/name", file) for name, value in SETTINGS[kind].items()}
                folder, _ = self.place()
                self.assertIn("cistern", self.run_in(folder, given))

    def test_what_stands_in_a_file_that_a_descriptor_names_stays(self):
        for file in ("/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"):
            for kind in ("report", "log"):
                given = {name: value.replace("shared/name", file) for name, value in SETTINGS[kind].items()}
                folder, _ = self.place()
                with open(folder / "err", "wb+") as err:
                    err.write(b"earlier\n")
                    err.flush()
                    os.fchmod(err.fileno(), 0o666)
                    self.run_in(folder, given, err)
                    err.seek(0)
                    self.assertRegex(err.read(), rb"\Aearlier\n(.*\n)*.*cistern")


@unittest.skipIf(os.getuid() != 0, "only root can make files of two users")
class OfTwoUsers(OwnFiles):
    """The same where the process is one user's and the names are another one's."""

    user, other = OWN, OTHER

    def test_a_link_of_another_user_is_not_followed(self):
        self.refused(lambda name, victim: (name.symlink_to(victim), self.give(name, OTHER)), "another's link")
        self.refused(lambda name, victim: (name.symlink_to(victim.parent / "new"), self.give(name, OTHER)),
                     "another's dangling link")

    def test_a_file_of_another_user_is_not_written(self):
        def make(name, _):
            name.write_text("of another user\n")
            name.chmod(0o666)
            self.give(name, OTHER)
        self.refused(make, "a file that was made before")

    def test_a_second_link_to_a_file_of_another_user_is_none(self):
        self.refused(lambda name, victim: (victim.chmod(0o666), os.link(victim, name)), "a hard link", OTHER)

    def test_a_folder_that_another_users_link_leads_to_is_none(self):
        for settings in SETTINGS.values():
            folder, shared = self.place()
            shared.rename(folder / "real")
            shared.symlink_to("real")
            self.give(shared, OTHER)
            said = self.run_in(folder, {"CISTERN_LOG": "warn"} | settings)
            self.assertIn("Operation not permitted", said)
            self.assertEqual(os.listdir(folder / "real"), [])

    def test_a_descriptor_of_another_users_process_is_none(self):
        for settings in SETTINGS.values():
            folder, _ = self.place()
            given = {name: value.replace("shared/name", f"/proc/{os.getpid()}/fd/2") for name, value in settings.items()}
            self.assertIn("Permission denied", self.run_in(folder, {"CISTERN_LOG": "warn"} | given))


@unittest.skipIf(os.getuid() != 0, "only root can make devices and be root")
class OfRoot(OfTwoUsers):
    """The same where the process is root's, which may write to every file."""

    user, other = 0, OTHER

    def test_a_device_is_not_written(self):
        # Of a kind that nothing answers: opening it fails, too, but it would be tried.
        for kind, number in ((stat.S_IFCHR, os.makedev(1, 7)), (stat.S_IFBLK, os.makedev(7, 250))):
            def make(name, _, kind=kind, number=number):
                try:
                    os.mknod(name, kind | 0o666, number)
                except PermissionError:
                    self.skipTest("root may make no devices here")
            self.refused(make, "a device")

    def test_a_descriptor_of_another_users_process_is_none(self):
        self.skipTest("root may use every descriptor")


if __name__ == "__main__":
    life.main()
