#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern flags`, `doctor`, `version`, `help`, the settings page, and scripts/deps."""

import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import home


class Flags(home.LauncherTest):
    def row(self, name, *options, **more):
        lines = self.cistern("flags", *options, **more).stdout.splitlines()
        return next(line.split() for line in lines if line.startswith(name + " "))

    def names(self):
        tool = [self.home / "cistern-config", "flags", "--names"]
        names = subprocess.run(tool, capture_output=True, text=True).stdout.split()
        self.assertGreater(len(names), 40)
        return names

    def test_every_setting_is_there_and_fits_into_100_columns(self):
        result = self.cistern("flags")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for name in self.names():
            self.assertIn(f"\n{name} ", result.stdout)
        self.assertNotIn("not built", result.stdout)
        self.assertNotRegex(result.stdout, r"\n\n[^\n]+\n\n")  # a heading with nothing below it
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 100)

    def test_values_and_where_they_come_from(self):
        config = self.file("c", "CISTERN_REPORT=json\n")
        env = {"CISTERN_GPU_LIMIT": "60%", "CISTERN_CONFIG": config}
        self.assertEqual(self.row("CISTERN_GPU_LIMIT", env=env)[1:3], ["60%", "env"])
        self.assertEqual(self.row("CISTERN_REPORT", env=env)[1:3], ["json", "file"])
        self.assertEqual(
            self.row("CISTERN_REPORT", "--report", "text", env=env)[1:3], ["text", "launcher"]
        )
        self.assertEqual(self.row("CISTERN_LOG", env=env)[1:3], ["warn", "default"])
        self.assertEqual(
            self.row("CISTERN_GPU_LIMIT_3", "--gpu-limit-3", "1G")[1:3], ["1G", "launcher"]
        )

    def test_a_default_that_counts_only_beside_other_settings_is_not_shown_as_in_force(self):
        """Setting such a one to its default changes what happens."""
        for name, default in (("FLAGS_eager_delete_tensor_gb", "-1.0"), ("FLAGS_use_pinned_memory", "true"),
                              ("FLAGS_fuse_parameter_groups_size", "3"), ("FLAGS_fuse_parameter_memory_size", "-1.0"),
                              ("FLAGS_fraction_of_gpu_memory_to_use", "0.92"), ("FLAGS_free_idle_memory", "false"),
                              ("FLAGS_initial_cpu_memory_in_mb", "500"), ("FLAGS_limit_of_tmp_allocation", "-1")):
            self.assertEqual(self.row(name)[1:], ["unset", "default", default])
            self.assertEqual(self.row(name, env={name: default})[1:], [default, "env", default])
            whole = self.cistern("flags", name).stdout
            self.assertIn("  value:    unset (default)\n", whole)
            self.assertIn(f"  default:  {default}\n", whole)
        self.assertEqual(self.row("CISTERN_FREE_SYNC")[1:], ["auto", "default", "auto"])

    def test_an_unknown_option_is_called_so(self):
        for command in ("flags", "doctor", "run"):
            for words in (("--frobnicate",), ("--frobnicate", "true"), ("--report-fil",)):
                self.refused(self.cistern(command, *words), 2, "unknown option", words[0])
        self.refused(self.cistern("flags", "--report-fil"), 2, "did you mean --report-file")
        self.refused(self.cistern("flags", "--gpu-limit"), 2, "an option without its value")
        self.refused(self.cistern("doctor", "--host"), 2, "an option without its value")

    def test_one_setting_in_full(self):
        result = self.cistern(
            "flags", "CISTERN_REPORT_FILE", env={"CISTERN_REPORT_FILE": "/a/long/name/of/a/file"}
        )
        self.assertIn("/a/long/name/of/a/file (env)", result.stdout)
        self.assertIn("%p", result.stdout)
        self.refused(self.cistern("flags", "CISTERN_REPROT"), 2, "did you mean CISTERN_REPORT;")

    def test_one_setting_by_the_name_it_has_as_an_option(self):
        whole = self.cistern("flags", "CISTERN_GPU_LIMIT").stdout
        for name in ("gpu-limit", "--gpu-limit", "gpu_limit"):
            words = ("flags", "--", name) if name.startswith("-") else ("flags", name)
            self.assertEqual(self.cistern(*words).stdout, whole)
        self.assertIn("FLAGS_free_idle_memory", self.cistern("flags", "free-idle-memory").stdout)
        self.refused(self.cistern("flags", "gpu-limt"), 2, "did you mean CISTERN_GPU_LIMIT;")

    def test_a_bad_setting_is_said(self):
        self.refused(self.cistern("flags", env={"CISTERN_POOL": "maybe"}), 2, "CISTERN_POOL")

    def test_output_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run(
                [home.LAUNCHER, "--home", self.home, "flags"], stdout=full, check=False
            )
        self.assertNotEqual(result.returncode, 0)

    def test_print_env_merges_the_file(self):
        config = self.file("c", "CISTERN_LOG_FILE=/it's\n")
        env = {"CISTERN_CONFIG": config, "PATH": os.environ["PATH"]}
        result = subprocess.run(
            [self.home / "cistern-config", "print-env"], env=env, capture_output=True, text=True
        )
        self.assertEqual(
            result.stdout,
            f"export CISTERN_CONFIG='{config}'\nexport CISTERN_LOG_FILE='/it'\\''s'\n",
        )


class Pages(home.LauncherTest):
    def test_the_settings_page_has_every_setting(self):
        page = (home.ROOT / "config" / "SETTINGS.md").read_text(encoding="utf-8")
        names = subprocess.run([self.home / "cistern-config", "flags", "--names"], capture_output=True, text=True)
        for name in names.stdout.split():
            self.assertEqual(page.count(f"| `{name}` |"), 1, name)

    def test_the_settings_page_is_what_the_table_says(self):
        page = subprocess.run(
            [self.home / "cistern-config", "flags", "--markdown"], capture_output=True, text=True
        )
        kept = (home.ROOT / "config" / "SETTINGS.md").read_text(encoding="utf-8")
        self.assertEqual(
            kept, page.stdout, "stale; run: cistern-config flags --markdown >config/SETTINGS.md"
        )

    def test_there_is_one_version(self):
        text = (home.ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        said = self.cistern("version").stdout
        stated = re.search(r"project\(cistern VERSION ([0-9.]+)", text)
        if stated:
            self.assertEqual(said, f"cistern {stated[1]}\n")
        self.assertRegex(said, r"^cistern \d+\.\d+\.\d+\n$")

    def test_help_names_every_command(self):
        for words in ((), ("help",), ("--help",), ("-h",), ("run", "--help"), ("run", "-h")):
            result = self.cistern(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for command in ("run", "flags", "doctor", "version"):
                self.assertIn(f"cistern {command}", result.stdout)


class Doctor(home.LauncherTest):
    def test_a_machine_with_a_device_will_do(self):
        result = self.cistern("doctor", "--sim", "sh")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn(f"{self.home}/sim/libcuda.so.1, CUDA 13.0", result.stdout)
        self.assertRegex(result.stdout, r"devices +1\n")
        self.assertIn("works here", result.stdout)

    def test_a_driver_newer_than_the_object_is_said(self):
        """The simulated driver has functions that no table knows; the stand-in for an object has no table."""
        newer = self.cistern("doctor", "--sim", home=home.built())
        self.assertIn("this driver is newer than Cistern: 306 functions are unknown", newer.stdout)
        self.assertNotIn("newer than Cistern", self.cistern("doctor", "--sim").stdout)

    def test_routes_are_told_apart(self):
        def routes(source, *options):
            program = str(self.folder / "program")
            command = [
                "cc",
                "-x",
                "c",
                "-",
                "-o",
                program,
                f"-L{self.home}/sim",
                "-Wl,--no-as-needed",
                *options,
            ]
            subprocess.run(command, input=source, text=True, check=True)
            return self.cistern("doctor", "--sim", program).stdout

        main = "int main(void) { return 0; }"
        self.assertIn("linked with the driver", routes(main, "-l:libcuda.so.1", "-Wl,-soname,x"))
        opens = 'const char* volatile n = "libcuda.so.1"; ' + main
        self.assertIn("opens libcuda itself", routes(opens))
        static = 'const char* volatile n = "libcuda.so.1 cudaErrorCudartUnloading"; ' + main
        self.assertIn("static CUDA runtime", routes(static))
        self.assertIn("none found", routes(main))

    def malloc_line(self, source, *options, doctor=()):
        """What doctor says of the malloc of a program that is compiled from this."""
        program = str(self.folder / "program")
        command = ["cc", "-x", "c", "-", "-x", "none", "-o", program, *options]
        subprocess.run(command, input=source, text=True, check=True)
        result = self.cistern("doctor", "--sim", *doctor, program)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        lines = re.findall(r"^malloc +(.*)", result.stdout, re.M)
        self.assertEqual(len(lines), 1, result.stdout)
        return lines[0]

    def test_whose_malloc_serves_is_said(self):
        main = "int main(void) { return 0; }"
        own = home.HOST_LIBRARY + "void free(void* block) {}" + main
        self.assertRegex(self.malloc_line(main), "^Cistern's; --host off")
        for options in ((), ("-s",), ("-Wl,--exclude-libs,ALL", "-fvisibility=hidden")):
            line = self.malloc_line(own, "-fno-builtin", *options)
            self.assertRegex(line, "the program brings its own, .*; try: --host off")
        library = str(self.folder / "libown.so")
        home.compile_library(library, home.HOST_LIBRARY)
        by_name = (f"-L{self.folder}", "-lown", f"-Wl,-rpath,{self.folder}")
        for linked in ((library,), by_name):
            self.assertEqual(
                self.malloc_line(main, "-Wl,--no-as-needed", *linked),
                f"{library} brings its own, which Cistern's replaces; try: --host off",
            )
        for source in (main, own):
            line = self.malloc_line(source, "-fno-builtin", doctor=("--host", "off"))
            self.assertRegex(line, "^left alone: .*libcistern-device.so serves none")

    def test_a_library_is_one_and_its_routes_are_told(self):
        name = 'const char* volatile name = "libcuda.so.1%s";'
        linked = ("-Wl,--no-as-needed", f"-L{self.home}/sim", "-l:libcuda.so.1")
        for source, options, said in (
            ("int n;", (), "none found"),
            (name % "", (), "opens libcuda itself"),
            (name % " cudaErrorCudartUnloading", (), "static CUDA runtime"),
            ("int n;", linked, "linked with the driver"),
        ):
            path = self.library("liblib.so", source, *options)
            text = self.of_file(path)
            self.assertRegex(text, rf"(?m)^library +{path} .*: a library, not a program")
            self.assertIn(said, text)
            covered = "nothing to cover" if said == "none found" else "in programs that a preload reaches"
            self.assertRegex(text, rf"(?m)^covered +{covered}")
            self.assertNotIn("statically linked", text)

    def test_what_only_debug_information_names_is_no_route(self):
        library = self.library("liblib.so", "enum { cudaErrorCudartUnloading, n } v = n;", "-g")
        self.assertIn(b"cudaErrorCudartUnloading", pathlib.Path(library).read_bytes())
        self.assertIn("none found", self.of_file(library))

    def test_what_a_library_links_is_looked_through(self):
        runtime = self.library("libcudart.so.99", "int n;", "-Wl,-soname,libcudart.so.99")
        links = ("-Wl,--no-as-needed", f"-Wl,-rpath,{self.folder}")
        between = self.library("libbetween.so", "int n;", *links, runtime)
        outer = self.library("libouter.so", "int n;", *links, between)
        self.assertIn(f"{runtime}: shared CUDA runtime", self.of_file(outer))
        os.remove(runtime)
        self.assertIn("a CUDA library is not found", self.of_file(outer, works=False))

    def test_a_library_that_is_not_there_is_in_the_way_of_a_program(self):
        gone = self.library("libgone.so", "int n;", "-Wl,-soname,libgone.so")
        links = ("-Wl,--no-as-needed", f"-Wl,-rpath,{self.folder}", gone)
        program = str(self.folder / "program")
        command = ["cc", "-x", "c", "-", "-x", "none", "-o", program, *links]
        subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True)
        between = self.library("libbetween.so", "int n;", *links)
        self.assertNotIn("not found", self.of_file(program))
        os.remove(gone)
        self.assertIn("a library is not found: libgone.so;", self.of_file(program, works=False))
        # Who loads that one may have it.
        self.assertIn("a library is not found: libgone.so; who loads", self.of_file(between))

    def test_a_library_is_found_where_one_is_and_not_in_the_path(self):
        self.library("libhere.so", "int n;")
        for cwd, word in ((self.folder, "libhere.so"), (self.folder.parent, f"{self.folder.name}/libhere.so")):
            self.assertRegex(self.of_file(word, cwd=cwd), rf"library +\./{word} ")

    def test_the_malloc_of_a_library_is_told(self):
        own = self.library("libown.so", home.HOST_LIBRARY, "-fno-builtin")
        self.assertIn(f"malloc      {own} brings its own, which Cistern's replaces", self.of_file(own))
        self.assertIn("malloc      ./libown.so brings its own", self.of_file("libown.so", cwd=self.folder))
        self.assertRegex(self.of_file(self.library("libno.so", "int n;")), "malloc +Cistern's; ")

    def test_no_program_is_run_from_a_library(self):
        library = self.library("liblib.so", "int n;")
        os.chmod(library, 0o755)
        self.refused(self.cistern("run", library), 2, "a shared library is no program", f"cistern doctor {library}")

    def test_a_static_program_at_any_address_is_no_library(self):
        program = str(self.folder / "program")
        command = ["cc", "-static-pie", "-fPIE", "-x", "c", "-", "-o", program]
        subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True)
        self.assertIn("statically linked", self.of_file(program, works=False))

    def test_a_library_for_another_machine_is_one(self):
        segment = struct.pack("<IIQQQQQQ", 2, 4, 120, 0, 0, 16, 16, 8)  # an empty PT_DYNAMIC
        machine = 183 if platform.machine() == "x86_64" else 62
        header = struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        content = b"\x7fELF\2\1\1" + bytes(9) + header + segment + bytes(16)
        text = self.of_file(self.file("lib.so", content), works=False)
        self.assertRegex(text, "library +the library is for another architecture")

    def test_a_library_that_is_cut_short_is_read_as_far_as_it_goes(self):
        whole = pathlib.Path(self.library("liblib.so", 'const char* volatile name = "libcuda.so.1";')).read_bytes()
        for size in (40, 200, 700, 4000, 5000, len(whole) - 3000):
            result = self.cistern("doctor", "--sim", self.file("libcut.so", whole[:size]))
            self.assertIn(result.returncode, (0, 1), result.stdout)
            self.assertEqual(result.stderr, "", size)
            self.assertIn("verdict", result.stdout)

    def test_who_pools_itself_is_named_with_what_lets_cistern_pool(self):
        torch, setting = self.library("libc10_cuda.so", "int n;"), "PYTORCH_NO_CUDA_MEMORY_CACHING"
        by_name = ("-Wl,--no-as-needed", f"-Wl,-rpath,{self.folder}", torch)
        library = self.library("libtorch_cuda.so", "int n;", *by_name)
        program = str(self.folder / "program")
        source = "int main(void) { return 0; }"
        subprocess.run(["cc", "-x", "c", "-", "-x", "none", "-o", program, *by_name], input=source, text=True, check=True)
        for path in (torch, library, program):
            self.assertIn(
                f"pooling     PyTorch ({torch}) pools device memory itself; {setting}=1 lets Cistern do it\n",
                self.of_file(path),
            )
        self.assertRegex(
            self.of_file(library, env={setting: "0"}),
            rf"pooling +PyTorch \({torch}\) leaves it to Cistern: {setting} is set to \"0\"\n",
        )
        self.assertNotIn("pooling", self.of_file(self.library("libmy_libc10_cuda.so", "int n;")))

    def test_each_framework_has_its_own_word(self):
        for name, said in (
            ("xla_cuda_plugin.so", "JAX .* XLA_PYTHON_CLIENT_ALLOCATOR=platform lets"),
            ("libtensorflow_framework.so.2", "TensorFlow .* TF_GPU_ALLOCATOR=cuda_malloc lets"),
            ("cupy_backends/cuda/api/driver.so", r"CuPy .* cupy\.cuda\.set_allocator\(None\) lets"),
            ("libonnxruntime_providers_cuda.so", "ONNX Runtime .* itself; gpu_external_alloc and .* lets"),
            ("taichi_python.so", r"Taichi \(\S+\) pools device memory itself\n +Taichi opens its library with RTLD_DEEPBIND"),
            ("warp.so", r"Warp .* wp\.set_mempool_enabled\(device, False\) lets"),
            ("libpaddle.so", r"Paddle .* FLAGS_use_system_allocator=true lets .*\n +Paddle reads FLAGS_ variables too: .* --config FILE\n"),
            ("librmm.so", r"RMM .* itself, if the program asks it to; rmm\.reinitialize\(pool_allocator=False\) lets"),
        ):
            self.assertRegex(self.of_file(self.library(name, "int n;")), said)
        path = self.library("libtensorflow_framework.so.2", "int n;")
        for value, said in (("cuda_malloc", "leaves it to"), ("cuda_malloc_async", "pools device memory itself")):
            self.assertIn(said, self.of_file(path, env={"TF_GPU_ALLOCATOR": value}))

    def test_what_a_python_may_import_is_looked_for_beside_it(self):
        for folder in ("bin", "lib/python3.8/site-packages/cupy_backends",
                       "lib/python3.11/site-packages/torch/lib"):
            (self.folder / folder).mkdir(parents=True)
        real = self.folder / "python3.11"
        shutil.copy("/bin/true", real)
        os.symlink(real, self.folder / "bin/python3")
        python, packages = str(self.folder / "bin/python3"), self.folder / "bin/../lib/python3.11/site-packages"
        self.assertNotIn("pooling", self.of_file(python))
        torch = packages / "torch/lib/libc10_cuda.so"
        torch.write_bytes(b"")
        script = self.file("train.py", f"#!{python}\n")
        for path in (python, script):
            text = self.of_file(path)
            self.assertIn(f"PyTorch ({torch}), where it is imported, pools device memory itself; ", text)
            self.assertNotIn("CuPy", text)

    def test_which_toolkit_would_build_is_said_and_which_variable_points_to_none(self):
        header = self.folder / "cuda" / "include" / "cuda.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define CUDA_VERSION 12040\n", encoding="utf-8")
        (self.folder / "cuda" / "bin").mkdir()
        self.file("cuda/bin/nvcc", "#!/bin/sh\n")
        toolkit, path = str(self.folder / "cuda"), f"{self.folder}/cuda/bin:{os.environ['PATH']}"
        for env, wrong in (
            ({"CUDA_HOME": toolkit, "CUDA_PATH": ""}, ""),
            ({"CUDA_HOME": "", "CUDA_PATH": "", "PATH": path}, ""),
            ({"CUDA_HOME": "/none", "CUDA_PATH": toolkit}, "; CUDA_HOME=/none has no include/cuda.h"),
            ({"CUDA_HOME": "", "CUDA_PATH": "/none", "PATH": path}, "; CUDA_PATH=/none has no include/cuda.h"),
        ):
            said = re.findall(r"^toolkit +(.*)", self.cistern("doctor", "--sim", env=env).stdout, re.M)
            self.assertEqual(said, [f"12.4 in {toolkit}{wrong}"])

    def test_what_is_in_the_way_is_said(self):
        static = self.file("static", home.elf(62))
        result = self.cistern("doctor", "--sim", static)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, "statically linked|another architecture")
        result = self.cistern("doctor", "--sim", env={"CISTERN_LOG": "loud"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("CISTERN_LOG", result.stdout)
        self.refused(self.cistern("doctor", "a", "b"), 2, "too many arguments")


class Trace(home.LauncherTest):
    def test_no_recording_and_bad_options_are_one_line(self):
        other = self.file("other", "text")
        result = self.cistern("trace", other)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, "^cistern: error: .*: no recording; byte 0: .*; try: .*\n$")
        self.refused(self.cistern("trace", other, "--by", "colour"), 2, "--by", "colour", "site, range")
        self.refused(self.cistern("trace"), 2, "no recording given")
        self.assertIn("options of trace", self.cistern("trace", "--help").stdout)


class Deps(unittest.TestCase):
    """With a PATH that has next to nothing, as on a fresh machine."""

    def deps(self, *words, have=(), **env):
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "env", "sort", "head", "id", "grep", "cat", *have):
                os.symlink(shutil.which(tool), os.path.join(folder, tool))
            return subprocess.run(
                [home.ROOT / "scripts" / "deps", *words],
                env={"PATH": folder, **env},
                capture_output=True,
                text=True,
            )

    def test_what_is_missing_is_named_with_the_line_to_type(self):
        result = self.deps("--check", "--for", "lint")
        self.assertEqual(result.returncode, 1)
        for name in ("g++ 12", "cmake 3.25", "make", "shellcheck", "clang-format", "clang-tidy"):
            self.assertIn(f"missing: {name}", result.stderr)
        self.assertRegex(result.stderr, "Debian calls them .*shellcheck")

    def test_headers_belong_to_testing_only(self):
        self.assertIn("catch2", self.deps("--check", "--for", "test").stderr)
        self.assertNotIn("catch2", self.deps("--check", "--for", "build").stderr)

    def of_toolkit(self, version):
        """What is said where CUDA_HOME has an nvcc of this version: the lines about the toolkit."""
        with tempfile.TemporaryDirectory() as folder:
            nvcc = pathlib.Path(folder, "bin", "nvcc")
            nvcc.parent.mkdir()
            nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n", encoding="utf-8")
            nvcc.chmod(0o755)
            said = self.deps("--check", "--for", "build", CUDA_HOME=folder).stderr.replace(folder, "CUDA")
        return [line for line in said.splitlines() if "nvcc" in line or "toolkit" in line]

    def test_a_toolkit_that_is_too_old_is_one_line_with_what_to_install(self):
        for version in ("11.8", "12.3", "12.0"):
            (line,) = self.of_toolkit(version)
            self.assertIn(f"CUDA toolkit 12.4 or later, CUDA/bin/nvcc is {version}; install NVIDIA's package cuda-toolkit", line)
            self.assertIn("CUDA_HOME=/path/to/cuda make", line)
        for version in ("12.4", "12.9", "12.10", "13.0", "13.1"):
            self.assertEqual(self.of_toolkit(version), [])

    def test_bad_usage(self):
        self.assertEqual(self.deps("--for", "fun").returncode, 2)
        self.assertEqual(self.deps("--frobnicate").returncode, 2)


if __name__ == "__main__":
    home.main()
