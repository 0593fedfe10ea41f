#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What runs under env(1) runs under `cistern run`, with the same output and exit code: where the
check before the start cannot be sure, the kernel answers."""

import subprocess
import sys

import home


class AsEnv(home.LauncherTest):
    def same(self, path, code=None, output=""):
        """Without a code: what it is depends on the kernel."""
        bare = subprocess.run(
            ["env", path], capture_output=True, text=True, check=False
        )
        if code is None:
            code, output = bare.returncode, bare.stdout
        self.assertEqual((bare.returncode, bare.stdout), (code, output), bare.stderr)
        ours = self.cistern("run", path)
        self.assertEqual((ours.returncode, ours.stdout), (code, output), ours.stderr)
        return ours

    def test_scripts_through_env(self):
        python = f"#!/usr/bin/env -S -u FOO {sys.executable}\nprint(2)\n"
        self.same(self.file("unset", python), 0, "2\n")
        long = f"#!/usr/bin/env --split-string={sys.executable} -c print(7)\n"
        self.same(self.file("long", long), 0, "7\n")
        self.same(self.file("quote", '#!/usr/bin/env -S "sh" -e\necho q\n'), 0, "q\n")
        self.same(self.file("word", "#!/usr/bin/env -Ssh\necho w\n"), 0, "w\n")
        self.same(self.file("none", "#!/usr/bin/env no-such-program\n"), 127)
        self.same(self.file("one", "#!/usr/bin/env sh -e\n"), 127)  # without -S: one word

    def test_files_without_an_interpreter_are_run_by_the_shell(self):
        self.same(self.file("empty", ""), 0)
        self.same(self.file("alone", "#!"))
        self.same(self.file("line", "#!\necho line\n"))
        self.same(self.file("blanks", "#! \t \necho blanks\n"))
        self.same(self.file("text", "echo text\n"), 0, "text\n")
        self.same(self.file("bytes", b"echo bytes #\0\n"), 0, "bytes\n")
        self.same(self.file("cut", "#!/" + "x" * 300 + "\necho cut\n"))

    def test_an_interpreter_is_not_looked_for_in_path(self):
        self.same(self.file("bare", "#!sh\necho bare\n"), 127)

    def test_an_interpreter_that_cannot_be_run(self):
        for name, text, code in (
            ("crlf", "#!/bin/sh\r\necho hi\r\n", 127),
            ("absent", "#!/no/such/interpreter\n", 127),
            ("folder", "#!/etc\n", 126),
            ("data", "#!/etc/passwd\n", 126),
        ):
            self.same(self.file(name, text), code)
            self.refused(self.cistern("run", str(self.folder / name)), code, "its first line")

    def test_scripts_of_scripts_deeper_than_the_kernel_goes(self):
        self.file("s0", "#!/bin/sh\necho deep\n")
        for depth in range(1, 7):
            self.file(f"s{depth}", f"#!{self.folder}/s{depth - 1}\n")
        self.same(str(self.folder / "s3"), 0, "deep\n")
        self.same(str(self.folder / "s6"), 126)
        self.refused(self.cistern("run", str(self.folder / "s6")), 126, "Too many levels")


if __name__ == "__main__":
    home.main()
