#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people are shown of names and values that may hold anything: the same in the launcher's shell, in C++ and in
Python, and nothing that drives a terminal in any command's output (config/text.h)."""

import os
import subprocess
import sys

import home

sys.path += [str(home.ROOT / "scripts"), str(home.ROOT / "tests" / "record")]
import cistern_trace  # noqa: E402
import made_up  # noqa: E402

TEXTS = (
    *("plain", "a b", "it's \"q\"", "\\", "$(x)", "\u00e9\u20ac\U0001f600\u00a0\u3000", "\u200b\u2027\u202f\u2065\u206a\u061b\u061d"),
    *("\x01", "\a\b\t\n\v\f\r\x1b[2J\x1f\x7f", "\u0080\u009b2J\u009f", "\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"),
    *(b"\x9b2J", b"\xc2", b"\xc2x", b"\xe2\x80", b"\xe2\x80x", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xff\xfe", b"\x80\xbf"),
    *(b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf"),
    *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xe1\x80\xc2\x9b", b"\xc2\xc2\x9b"),
)


def shown(text):
    """In Python."""
    return cistern_trace.shown(os.fsdecode(text)).replace("\ufffd", "?")


class Shown(home.LauncherTest):
    def said(self, *words):
        """All that a command writes; each of its lines is one that a terminal may get."""
        command = [home.LAUNCHER, "--home", self.home, *words]
        result = subprocess.run(command, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, capture_output=True,
                                check=False, cwd=self.folder)
        text = os.fsdecode(result.stdout + result.stderr)
        for line in text.splitlines(keepends=True):
            self.assertEqual(cistern_trace.shown(line.removesuffix("\n")), line.removesuffix("\n"), words)
        return text

    def test_the_shell_and_cistern_config_show_what_python_does(self):
        for text in TEXTS:
            self.assertIn(f'value seen "{shown(text)}"', self.said(text), text)  # the shell's
            name = os.fsencode(text) + b"/x"
            self.assertIn(f'value seen "{shown(name)}"', self.said("run", "--", name), text)  # C++'s

    def test_every_command_keeps_its_lines(self):
        for number, text in enumerate(os.fsencode(text) for text in TEXTS):
            program = os.fsencode(self.folder) + b"/" + text.replace(b"/", b"") + b"x"
            with open(program, "wb") as file:
                file.write(home.elf(interpreter=f"/no{number}\x1b[2J\u009b"))
            os.chmod(program, 0o755)
            for words in ((b"run", b"--verbose", program), (b"run", b"--" + text), (b"run", b"--host", text), (b"run", b"--set", text),
                          (b"run", b"--set", b"CISTERN_GPU_LIMIT=" + text, b"true"), (b"run", b"--set", b"CISTERN_CONFIG=" + program, b"true"),
                          (b"run", b"--sim", b"--", text + b"/"), (b"record", b"-o", text + b"/x", b"true"), (b"doctor", program),
                          (b"doctor", text), (b"doctor", text, text), (b"flags", text), (b"flags", b"--" + text), (b"trace", text)):
                self.said(*words)

    def test_what_a_recording_names_in_every_view(self):
        """The program, the host and the policy; names of files, functions, ranges and phases."""
        hidden = b"".join(b"(%s)" % os.fsencode(text) for text in TEXTS)
        sites = b"\4\1\2\1\1\5\0\1\0\0\7" + b"\4\2\1\1\0\0\7"  # Python's and native
        definitions = b"\1\1" + made_up.varint(len(hidden)) + hidden + b"\2\1\0\1" + b"\2\2\1\1" + b"\3\1\1" + sites
        events = b"\x0d\2\x0e\1" + b"".join(b"\x0c" + bytes([site]) + made_up.ONE for site in (1, 2)) + made_up.REFUSED + b"\0\1\2"
        data = bytearray(made_up.recording_of((2, definitions), (1, events + made_up.FREED + b"\0\0")))
        for at, size in ((64, 1024), (1088, 256), (1344, 1024)):
            data[at:at + min(len(hidden), size - 1)] = hidden[:size - 1]
        recording = self.file("recording", bytes(data))
        seen = ""
        for words in (("--by", "site"), ("--by", "range"), ("--by", "phase"), (), ("--events",), ("--json",), ("--events", "--json"), ("--csv",),
                      ("--folded", "calls"), ("--folded", "bytes", "--by", "range"), ("--folded", "bytes", "--by", "phase"), ("--site", "*"), ("--range", hidden),
                      ("--svg", self.folder / "live")):
            seen += self.said("trace", recording, *words)
        self.assertGreater(seen.count("\ufffd"), 1000)
        for words in ((), ("--svg", self.folder / "picture"), ("-o", self.folder / "plan"), ("--device", "7"), ("--last", recording),
                      ("--print-log", "--skip", "*"), ("--print-log", "--skip", hidden)):
            self.said("plan", recording, *words)

    def test_a_file_of_any_name_in_every_tool(self):
        for number, text in enumerate(map(os.fsencode, TEXTS)):
            path = os.fsencode(self.folder) + b"/" + text.replace(b"/", b"") + b"x"
            contents = (b"", b"no recording", b"id,lower,upper,size\n" + text + b",0,x,1\n", b"op,id,size\nalloc," + text)
            with open(path, "wb") as file:
                file.write(contents[number % len(contents)])
            for words in ((b"trace", path), (b"trace", path, b"--by", path), (b"trace", path, path), (b"plan", path), (b"plan", path, b"-o", path + b"/x"),
                          (b"plan", path, b"--memory", path), (b"plan", path, b"--last", path), (b"doctor", path), (b"run", b"--config", path, b"true")):
                self.said(*words)

    def test_a_home_of_any_name(self):
        for text in TEXTS:
            self.home = self.folder / "homes" / os.fsdecode(os.fsencode(text).replace(b"/", b""))
            self.said("run", "true")

    def test_inspect(self):
        program = self.folder / "program"
        program.write_bytes(home.elf(interpreter="/lib\x1b[2J\u009b\u202e"))
        result = subprocess.run([self.home / "cistern-config", "inspect", program], capture_output=True, check=True)
        self.assertIn("interpreter /lib?[2J??\n", result.stdout.decode())


if __name__ == "__main__":
    home.main()
