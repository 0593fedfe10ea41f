#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern run`: what the program gets, and what is refused before it is started."""

import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

import home


class TheProgram(home.LauncherTest):
    def test_its_exit_code_is_ours(self):
        for code in (0, 1, 2, 7, 126, 127, 255):
            result = self.cistern("run", "--", "sh", "-c", f"exit {code}")
            self.assertEqual((result.returncode, result.stdout, result.stderr), (code, "", ""))

    def test_its_signal_is_ours(self):
        self.assertEqual(self.cistern("run", "sh", "-c", "kill -TERM $$").returncode, -15)

    def test_no_process_stays_between(self):
        command = [home.LAUNCHER, "--home", self.home, "run", "sh", "-c", "echo $$"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(int(process.stdout.read()), process.pid)

    def test_it_gets_its_words_and_its_input(self):
        words = ["--report", "a b", "", "*", "--", "-x", "q\"'q"]
        result = self.cistern(
            "run", "--", "sh", "-c", 'printf "[%s]" "$@"; cat', "sh", *words, input="in"
        )
        self.assertEqual(result.stdout, "".join(f"[{w}]" for w in words) + "in")

    def test_a_preload_that_was_there_comes_after_ours(self):
        other = str(self.home / "libcistern-device.so")
        mine = str(self.home / "libcistern.so")
        show = ("run", "sh", "-c", "echo $LD_PRELOAD")
        self.assertEqual(self.cistern(*show, env={"LD_PRELOAD": other}).stdout, f"{mine}:{other}\n")
        self.assertEqual(self.cistern(*show, env={"LD_PRELOAD": mine}).stdout, f"{mine}\n")
        self.assertEqual(self.cistern("run", "--host", "off", *show[1:]).stdout, f"{other}\n")

    def test_libraries_for_audit_leave_it_room(self):
        audit = str(self.folder / "libaudit.so")
        home.compile_library(audit, home.AUDIT)
        show = ("run", "sh", "-c", "echo $GLIBC_TUNABLES; grep -c libcistern.so /proc/$$/maps")
        room = "glibc.rtld.optional_static_tls=4096"
        for tunables, expected in (("", room), ("glibc.malloc.check=0", f"glibc.malloc.check=0:{room}")):
            result = self.cistern(*show, env={"LD_AUDIT": audit, "GLIBC_TUNABLES": tunables})
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, f"^{expected}\n[1-9]")
        self.assertRegex(self.cistern(*show).stdout, "^\n[1-9]")

    def test_a_sanitizers_runtime_comes_before_ours(self):
        source = self.file("racing.c", "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 7; }\n")
        for sanitizer in ("address", "thread", "leak"):
            program = self.folder / sanitizer
            built = subprocess.run(["gcc", f"-fsanitize={sanitizer}", source, "-o", program], capture_output=True, check=False)
            with self.subTest(sanitizer):
                # Not every system lets them map what they need.
                if built.returncode != 0 or subprocess.run([program], capture_output=True, check=False).returncode != 7:
                    self.skipTest(f"no program runs here with the {sanitizer} sanitizer")
                for host in ("on", "off"):
                    result = self.cistern("run", "--host", host, program, env={"ASAN_OPTIONS": "detect_leaks=0"})
                    self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "", ""), host)

    def test_the_simulated_cuda_comes_first_and_only_when_asked_for(self):
        show = ("sh", "-c", "echo $LD_LIBRARY_PATH")
        sim = str(self.home / "sim")
        self.assertEqual(self.cistern("run", *show).stdout, "\n")
        self.assertEqual(self.cistern("run", "--sim", *show).stdout, f"{sim}\n")
        result = self.cistern("run", "--sim", *show, env={"LD_LIBRARY_PATH": "/x:/y"})
        self.assertEqual((result.stdout, result.stderr), (f"{sim}:/x:/y\n", ""))
        result = self.cistern("run", "--sim", "--verbose", *show)
        self.assertIn("on the simulated CUDA", result.stderr)

    def test_scripts_run(self):
        for number, first in enumerate(
            ("#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env sh", "#!/usr/bin/env -S A=1 sh -e", "")
        ):
            script = self.file(f"s{number}", f"{first}\necho ran\n")
            result = self.cistern("run", script)
            self.assertEqual(
                (result.returncode, result.stdout, result.stderr), (0, "ran\n", ""), first
            )

    def test_it_is_found_in_path(self):
        self.file("prog", "#!/bin/sh\necho found\n")
        result = self.cistern(
            "run", "prog", env={"PATH": f"/nowhere:{self.folder}:{os.environ['PATH']}"}
        )
        self.assertEqual(result.stdout, "found\n")


class Settings(home.LauncherTest):
    def shown(self, *options, name, **more):
        result = self.cistern("run", *options, "--", "sh", "-c", f'printf %s "${name}"', **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_every_setting_is_an_option(self):
        for options, name, value in (
            (("--report", "json"), "CISTERN_REPORT", "json"),
            (("--gpu-limit=60%",), "CISTERN_GPU_LIMIT", "60%"),
            (("--gpu-limit-1", "8G"), "CISTERN_GPU_LIMIT_1", "8G"),
            (("--gpu-memory-limit-mb", "8192"), "FLAGS_gpu_memory_limit_mb", "8192"),
            (("--static-memory-policy", "3"), "CISTERN_STATIC_MEMORY_POLICY", "3"),
            (("--use-static-memory=3",), "GE_USE_STATIC_MEMORY", "3"),
            (("--set", "FLAGS_other_people=a b=c"), "FLAGS_other_people", "a b=c"),
            # As gflags takes them, by the full name.
            (("--FLAGS_eager_delete_tensor_gb", "0"), "FLAGS_eager_delete_tensor_gb", "0"),
            (("--FLAGS_eager_delete_tensor_gb", "-1"), "FLAGS_eager_delete_tensor_gb", "-1"),
            (("--FLAGS_eager_delete_tensor_gb=0.5",), "FLAGS_eager_delete_tensor_gb", "0.5"),
            (("--FLAGS_init_allocated_mem",), "FLAGS_init_allocated_mem", "true"),
            (("--FLAGS_init_allocated_mem", "false"), "FLAGS_init_allocated_mem", "false"),
            (("--GE_USE_STATIC_MEMORY", "2"), "GE_USE_STATIC_MEMORY", "2"),
            # As they are called on Ascend.
            (("--set", "static_memory_policy=2"), "CISTERN_STATIC_MEMORY_POLICY", "2"),
            (("--set", "ge.exec.staticMemoryPolicy=2"), "CISTERN_STATIC_MEMORY_POLICY", "2"),
            (("--ge.exec.staticMemoryPolicy", "2"), "CISTERN_STATIC_MEMORY_POLICY", "2"),
            (("--set", "atomic_clean_policy=1"), "CISTERN_ATOMIC_CLEAN_POLICY", "1"),
        ):
            self.assertEqual(self.shown(*options, name=name), value)

    def test_a_name_of_ascend_is_named_in_what_is_wrong_with_its_value(self):
        for option in ("static_memory_policy=7", "ge.exec.staticMemoryPolicy=7"):
            self.refused(self.cistern("run", "--set", option, "true"), 2, "CISTERN_STATIC_MEMORY_POLICY", "static_memory_policy",
                         "ge.exec.staticMemoryPolicy", '"7"', "from 0 to 4")
        self.refused(self.cistern("run", "--set", "atomic_clean_policy=7", "true"), 2, "(atomic_clean_policy, ge.exec.")
        self.refused(self.cistern("run", "--set", "ge.exec.nothing=7", "true"), 2, "--set needs a setting")

    def test_a_name_that_is_no_setting_is_said_in_one_line_and_the_program_runs(self):
        for name, meant in (("FLAGS_eager_delete_tensor", ""), ("OTHER", ""), ("reprot", "did you mean CISTERN_REPORT? "),
                            ("gpu_limit", "did you mean CISTERN_GPU_LIMIT? ")):
            result = self.cistern("run", "--set", f"{name}=1", "--log-file", "/dev/null", "--", "sh", "-c", f"printf %s ${name}")
            self.assertEqual((result.returncode, result.stdout), (0, "1"))
            self.assertEqual(result.stderr, f'cistern: warn: --set names no setting of Cistern\'s; value seen "{name}"; {meant}'
                             "The program finds it in its environment; see cistern flags\n")
        result = self.cistern("run", "--set", "A=1", "--set", "B=1", "--set", "A=2", "--", "true")
        self.assertRegex(result.stderr, r'^.* value seen "A, B"; .*\n$')
        result = self.cistern("run", "--set", "OTHER=1", "--log", "error", "--", "true")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        result = self.cistern("run", "--set", "CISTERN_REPROT=1", "--", "true")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (0, 1))

    def test_yes_or_no_alone_means_yes(self):
        for options, value in (((), "true"), (("no",), "no"), (("y",), "y")):
            options = ("--free-idle-memory", *options)
            self.assertEqual(self.shown(*options, name="FLAGS_free_idle_memory"), value)
        self.assertEqual(self.shown("--pin-eager", "--log", "info", name="CISTERN_LOG"), "info")

    def test_a_word_after_yes_or_no_that_is_neither_is_said(self):
        for word in ("off", "", "true ", "sh"):
            self.refused(self.cistern("run", "--pin-eager", word, "--", "true"), 2, "yes or no", f'"{word}"')
            self.refused(self.cistern("run", "--pin-eager", word), 2, "--pin-eager=true")

    def test_an_option_without_its_value_is_said(self):
        for words in (("--gpu-limit",), ("--gpu-limit", "--", "true"), ("--set", "--", "true")):
            self.refused(self.cistern("run", *words), 2, "without its value", words[0])

    def test_an_option_that_takes_no_value_is_said(self):
        for option in ("--sim", "--verbose", "--anyway", "--print-env"):
            self.refused(self.cistern("run", f"{option}=1", "true"), 2, "takes no value", option)

    def test_what_changes_nothing_beside_pool_off_is_said_once(self):
        result = self.cistern("run", "--pool", "off", "--gpu-limit", "1G", "--", "true")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (0, 1))
        self.assertIn("CISTERN_GPU_LIMIT", result.stderr)

    def test_an_option_goes_before_the_environment(self):
        self.assertEqual(
            self.shown("--log", "info", name="CISTERN_LOG", env={"CISTERN_LOG": "error"}), "info"
        )

    def test_file_names_become_absolute(self):
        self.file("my settings", "CISTERN_LOG=info\n")
        value = self.shown("--config", "my settings", name="CISTERN_CONFIG", cwd=self.folder)
        self.assertEqual(value, f"{self.folder}/my settings")

    def test_bad_ones_start_nothing(self):
        mark = self.folder / "started"
        program = ("--", "touch", str(mark))
        self.refused(
            self.cistern("run", "--report", "html", *program),
            2,
            "CISTERN_REPORT",
            '"html"',
            "text or json",
        )
        self.refused(self.cistern("run", *program, env={"CISTERN_LOG": ""}), 2, "CISTERN_LOG")
        self.refused(
            self.cistern("run", "--config", "/no/file", *program),
            2,
            "CISTERN_CONFIG",
            "No such file",
        )
        both = ("--gpu-limit", "1G", "--gpu-memory-limit-mb", "1024")
        self.refused(self.cistern("run", *both, *program), 2, "two settings conflict")
        self.assertFalse(mark.exists())

    def test_print_env_is_for_eval(self):
        result = self.cistern("run", "--sim", "--print-env", "--log-file", "/tmp/it's a log")
        shown = subprocess.run(
            [
                "bash",
                "-c",
                'eval "$1"; LD_PRELOAD= exec printf "%s|" "$CISTERN_LOG_FILE" "$LD_LIBRARY_PATH"',
                "-",
                result.stdout,
            ],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        self.assertEqual(shown.stdout, f"/tmp/it's a log|{self.home}/sim|")
        self.assertIn(f"export LD_PRELOAD='{self.home}/libcistern.so'\n", result.stdout)


class Usage(home.LauncherTest):
    def test_mistakes_are_named(self):
        self.refused(self.cistern("run"), 2, "no program given")
        self.refused(self.cistern("run", "--"), 2, "no program given")
        self.refused(self.cistern("run", "--reprot", "text", "true"), 2, "did you mean --report;")
        self.refused(self.cistern("run", "--nonsense-option", "1", "true"), 2, "cistern help")
        self.refused(self.cistern("run", "-x", "true"), 2, '"-x"')
        self.refused(self.cistern("run", "--log"), 2, "without its value")
        self.refused(self.cistern("run", "--set", "novalue", "true"), 2, "NAME=VALUE")
        self.refused(self.cistern("run", "--host", "maybe", "true"), 2, "on or off")
        self.refused(self.cistern("fly"), 2, '"fly"')
        self.refused(
            self.cistern("run", "true", home="/no/such/folder"), 2, "no build of Cistern", "make"
        )

    def test_a_build_without_the_tool_is_named(self):
        with tempfile.TemporaryDirectory() as few:
            pathlib.Path(few, "cistern-config").symlink_to(home.built() / "cistern-config")
            for command in ("trace", "plan"):
                self.refused(self.cistern(command, "file", home=few), 2, f"cistern-{command} is not built", "make")


class RefusedBefore(home.LauncherTest):
    """What would fail, or be passed over, after the start: nothing is started."""

    def test_a_recording_where_nothing_can_be_written(self):
        started = self.folder / "started"
        for name in ("/no/such/folder/run.cistern", "/proc/run.cistern", "/no/such/folder/%p.cistern",
                     f"{self.file('text', '')}/run.cistern"):
            self.refused(self.cistern("record", "-o", name, "--", "touch", str(started)), 2,
                         "a recording cannot be written", name)
        self.assertFalse(started.exists())
        done = self.cistern("record", "-o", f"{self.folder}/%p.cistern", "--", "touch", str(started))
        self.assertEqual((done.returncode, started.exists()), (0, True), done.stderr)

    def test_a_recording_whose_name_means_stdin_elsewhere(self):
        (self.folder / "-").write_bytes(b"CISTREC\n")
        done = self.cistern("record", "-o", "-", "--", "cat", cwd=self.folder, input="the program's")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "the program's", ""))
        self.assertFalse((self.folder / "-").exists())

    def test_host_settings_where_malloc_is_left_alone(self):
        for name, value in (("FLAGS_initial_cpu_memory_in_mb", "64"), ("FLAGS_use_pinned_memory", "true"),
                            ("FLAGS_fraction_of_cpu_memory_to_use", "0.5"), ("CISTERN_PIN_EAGER", "true"),
                            ("CISTERN_MALLOC_CONF", "narenas:4")):
            ways = (((), {name: value}), (("--set", f"{name}={value}"), {}),
                    ((), {"CISTERN_CONFIG": self.file("c", f"{name}={value}\n")}))
            for options, env in ways:
                self.refused(self.cistern("run", "--host", "off", *options, "true", env=env), 2,
                             f"{name}={value}", f"try: unset {name}")
                self.assertEqual(self.cistern("run", *options, "true", env=env).returncode, 0)
        for name in ("CISTERN_PINNED_POOL", "FLAGS_init_allocated_mem", "FLAGS_free_idle_memory"):
            self.assertEqual(self.cistern("run", "--host", "off", "true", env={name: "true"}).returncode, 0)


class OutOfReach(home.LauncherTest):
    def test_missing_and_unrunnable_programs_as_env_has_them(self):
        self.refused(self.cistern("run", "no-such-program"), 127, '"no-such-program"')
        self.refused(self.cistern("run", "./no/such"), 127)
        self.refused(self.cistern("run", ""), 127)
        self.refused(
            self.cistern("run", self.file("text", "echo hi\n", 0o644)),
            126,
            "not executable",
            "chmod +x",
        )
        self.refused(self.cistern("run", str(self.folder)), 126, "directory")

    def test_programs_a_preload_cannot_enter(self):
        native = struct.unpack_from("<H", pathlib.Path("/bin/sh").read_bytes(), 18)[0]
        foreign = 183 if native != 183 else 62
        glibc = "/lib64/ld-linux-x86-64.so.2"
        static = self.file("static", home.elf(native))
        self.refused(self.cistern("run", static), 2, "statically linked", static)
        whole = pathlib.Path(shutil.which("true")).read_bytes()
        for size in (100, len(whole) // 2):
            part = self.file(f"part-{size}", whole[:size])
            self.refused(self.cistern("run", part), 126, "ends before", part)
        self.refused(
            self.cistern("run", self.file("arch", home.elf(foreign, interpreter=glibc))),
            2,
            "architecture",
        )
        self.refused(
            self.cistern("run", self.file("small", home.elf(3, bits=32))), 2, "32-bit x86", "64-bit"
        )
        absent = self.file("absent", home.elf(native, interpreter="/no/ld.so"))
        self.refused(self.cistern("run", absent), 127, "/no/ld.so")
        musl = self.file("musl", home.elf(native, interpreter="/lib/ld-musl-x86_64.so.1"))
        self.refused(self.cistern("run", musl), 2, "musl")
        self.refused(
            self.cistern("run", self.file("script", f"#!{static}\n")), 2, "statically linked"
        )

    def test_a_static_wrapper_may_be_insisted_on(self):
        source = self.file("wrapper.c", "#include <unistd.h>\n"
                           "int main(int n, char** words) { return n > 1 ? execvp(words[1], words + 1) : 0; }\n")
        wrapper = str(self.folder / "wrapper")
        subprocess.run(["cc", "-static", "-o", wrapper, source], check=True)
        words = (wrapper, "sh", "-c", "echo $LD_PRELOAD")
        self.refused(self.cistern("run", *words), 2, "statically linked", "--anyway")
        result = self.cistern("run", "--anyway", *words)
        self.assertEqual((result.stdout, result.stderr), (f"{self.home}/libcistern.so\n", ""))
        self.refused(self.cistern("run", "--anyway", "no-such-program"), 127, "no-such-program")

    def test_a_file_cut_short_is_read_without_a_crash(self):
        whole = pathlib.Path("/bin/true").read_bytes()
        for size in range(0, 4200, 41):
            inspect = [self.home / "cistern-config", "inspect", self.file("cut", whole[:size])]
            result = subprocess.run(inspect, capture_output=True, text=True, check=False)
            self.assertIn(result.returncode, (0, 2), f"{size} bytes: {result.stderr}")

    def as_other_user(self, *words, **more):
        """With a copy of the launcher: the checkout may be in a home that only its owner can enter."""
        launcher = self.folder / "cistern"
        shutil.copy(home.LAUNCHER, launcher)
        launcher.chmod(0o755)
        return self.cistern(*words, launcher=launcher, user=65534, cwd="/", **more)

    def needs_two_users(self, path):
        if os.getuid() != 0:
            self.skipTest("needs root, to make files of one user and run as another")
        if os.statvfs(path).f_flag & os.ST_NOSUID:
            self.skipTest("the folder for temporary files is mounted nosuid")
        try:
            reached = self.as_other_user("version").returncode == 0
        except PermissionError:
            reached = False
        if not reached:
            self.skipTest(f"another user cannot enter the folder for temporary files, {path}")

    def test_programs_that_gain_privileges(self):
        self.needs_two_users(self.folder)
        copy = self.folder / "copy"
        shutil.copy("/bin/true", copy)
        copy.chmod(0o4755)
        self.refused(self.as_other_user("run", str(copy)), 2, "set-user-ID")
        asked = self.as_other_user("doctor", "--sim", str(copy))
        self.assertEqual(asked.returncode, 1)
        self.assertRegex(asked.stdout, "program +the program is set-user-ID.*; try: a copy of it")
        self.assertEqual(self.cistern("run", str(copy)).returncode, 0)  # root gains nothing
        copy.chmod(0o755)
        try:
            os.setxattr(
                copy,
                "security.capability",
                bytes.fromhex("0100000200040000000000000000000000000000"),
            )
        except OSError as error:
            self.skipTest(f"no file capabilities here: {error}")
        self.refused(self.as_other_user("run", str(copy)), 2, "capabilities")


    def test_what_only_its_owner_may_read_of_an_installation_is_named(self):
        self.needs_two_users(self.folder)
        tool = self.folder / "prefix/libexec/cistern/cistern-config"
        tool.parent.mkdir(parents=True)
        shutil.copy(self.home / "cistern-config", tool)
        hidden = (tool, *tool.parents[:3])
        for path in hidden:
            path.chmod(0o755)
        for path in hidden:
            path.chmod(0o700)
            result = self.as_other_user("run", "true", home=tool.parents[2])
            self.refused(result, 2, "no permission to read", f'"{path}"', f"chmod a+rx {path}")
            path.chmod(0o755)
        self.assertEqual(self.as_other_user("version", home=tool.parents[2]).returncode, 0)


class TheObject(home.LauncherTest):
    def moved(self, name):
        copy = self.folder / name
        shutil.copytree(self.home, copy)
        return copy

    def test_its_path_must_fit_into_ld_preload(self):
        for name in ("with blank", "with:colon", "with\ttab"):
            self.refused(
                self.cistern("run", "true", home=self.moved(name)),
                2,
                "blanks or colons",
                "make install",
            )

    def test_it_must_be_there_and_a_library(self):
        at = self.moved("copy")
        (at / "libcistern.so").unlink()
        self.refused(self.cistern("run", "true", home=at), 2, "cannot be read", "libcistern.so")
        (at / "libcistern.so").write_text("no library\n")
        self.refused(self.cistern("run", "true", home=at), 2, "not a shared library")
        shutil.rmtree(at / "sim")
        self.refused(
            self.cistern("run", "--sim", "--host", "off", "true", home=at), 2, "simulated CUDA"
        )

    def test_an_installation_is_found_from_its_launcher(self):
        prefix = self.folder / "prefix"
        for folder in ("bin", "lib/cistern/sim", "libexec/cistern"):
            (prefix / folder).mkdir(parents=True)
        shutil.copy2(home.LAUNCHER, prefix / "bin")
        shutil.copy2(self.home / "cistern-config", prefix / "libexec/cistern")
        shutil.copy2(self.home / "libcistern.so", prefix / "lib/cistern")
        shutil.copy2(self.home / "sim/libcuda.so.1", prefix / "lib/cistern/sim")
        link = self.folder / "cistern"
        link.symlink_to(prefix / "bin/cistern")
        for launcher in (prefix / "bin/cistern", link):
            result = self.cistern(
                "run",
                "--sim",
                "sh",
                "-c",
                "echo $LD_PRELOAD $LD_LIBRARY_PATH",
                home="",
                launcher=launcher,
            )
            self.assertEqual(
                result.stdout, f"{prefix}/lib/cistern/libcistern.so {prefix}/lib/cistern/sim\n"
            )


if __name__ == "__main__":
    home.main()
