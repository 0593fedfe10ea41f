#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cistern doctor` says that a program lacks, and what holds in spite of its verdict."""

import os
import re
import subprocess

import home


class Verdict(home.LauncherTest):
    def test_each_library_that_is_not_there_is_named_once(self):
        names = ("libcudart.so.98", "libcublas.so.98", "libother.so.98")
        gone = [self.library(name, "int n;", f"-Wl,-soname,{name}") for name in names]
        links = ("-Wl,--no-as-needed", f"-Wl,-rpath,{self.folder}", *gone)
        outer = self.library("libouter.so", "int n;", *links, self.library("libbetween.so", "int n;", *links))
        for path in gone:
            os.remove(path)
        text = self.of_file(outer, works=False)
        self.assertEqual(sorted(re.search("a CUDA library is not found: (.*); the", text)[1].split()), sorted(names))

    def test_a_program_without_cuda_is_told_that_malloc_works(self):
        missing = self.cistern("doctor", "true", env={"LD_LIBRARY_PATH": ""}).stdout
        if "\ndriver      none" not in missing:
            self.skipTest("this machine has a driver")
        self.assertRegex(missing, "(?m)^verdict +malloc works here, and no CUDA is seen in the program")
        device = self.cistern("doctor", "--host", "off", "true", env={"LD_LIBRARY_PATH": ""}).stdout
        self.assertRegex(device, "(?m)^verdict +no GPU: CUDA programs cannot run here")

    def test_a_sanitizer_and_libraries_for_audit_are_in_the_verdict(self):
        runtime = self.library("libtsan.so.98", "int n;", "-Wl,-soname,libtsan.so.98")
        program = str(self.folder / "program")
        command = ["cc", "-x", "c", "-", "-x", "none", "-o", program, "-Wl,--no-as-needed",
                   f"-Wl,-rpath,{self.folder}", runtime]
        subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True)
        text = self.of_file(program)
        self.assertRegex(text, "(?m)^malloc +that of libtsan.so.98, .*; try: --host off$")
        self.assertRegex(text, "(?m)^sanitizer +libtsan.so.98 must come before the object")
        self.assertRegex(text, "(?m)^verdict +works here; malloc stays the sanitizer's$")
        audited = self.of_file("true", env={"LD_AUDIT": self.library("libaudit.so", home.AUDIT)})
        self.assertRegex(audited, "(?m)^verdict +works here; beside libraries for audit only with room for static TLS")
        self.assertNotIn("audit", self.of_file("true"))

    def test_a_library_that_binds_deep_is_in_the_verdict(self):
        taichi = self.library("taichi_python.so", "int n;")
        self.assertRegex(self.of_file(taichi), "(?m)^verdict +works here; not with Taichi unless with --audit or --host off$")
        self.assertRegex(self.of_file(taichi, "--host", "off"), "(?m)^verdict +works here$")


if __name__ == "__main__":
    home.main()
