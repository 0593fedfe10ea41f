# SPDX-License-Identifier: Apache-2.0
"""Completes the environment that runs this: CuPy's source package, and its runtime module linked anew.

The wheel's module has NVIDIA's runtime linked into it, which speaks with its driver through tables that
nothing documents. The source package has the module's source: it is built as it is and linked with the
shared runtime, which is the simulated one. The package also brings CuPy's own tests.

Usage: prepare.py FOLDER SIM, with FOLDER for what is made, and the folder of the simulated CUDA.
"""

import importlib.metadata
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile

PACKAGE, WHEEL = "cupy", "cupy-cuda13x"
MODULE = "cupy_backends/cuda/api/runtime"
DIRECTIVES = ["embedsignature=True", "c_api_binop_methods=True", "binding=False"]  # as the package has them
CONSTANTS = {"CUPY_USE_CUDA_PYTHON": False, "CUPY_CUDA_VERSION": 13000, "CUPY_HIP_VERSION": 0,
             "CUPY_CUFFT_STATIC": False}


def run(*command, cwd=None):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"{pathlib.Path(command[0]).name} failed: {(done.stderr + done.stdout).strip()[-2000:]}")


def unpack(folder):
    """The source package, of the wheel's version."""
    wanted = f"{PACKAGE}=={importlib.metadata.version(WHEEL)}"
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
        "--no-build-isolation", "--no-binary", PACKAGE, "--dest", folder, wanted)
    with tarfile.open(next(folder.glob(f"{PACKAGE}-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob(f"{PACKAGE}-*") if path.is_dir())


def build(source, sim, target):
    constants = ",".join(f"{name}={value}" for name, value in CONSTANTS.items())
    directives = [option for directive in DIRECTIVES for option in ("-X", directive)]
    code = source / "runtime.cpp"
    run(sys.executable, "-m", "cython", "--cplus", "-3", *directives, "-E", constants, f"{MODULE}.pyx", "-o", code,
        cwd=source)
    headers = pathlib.Path(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations))) / "cu13/include"
    run("c++", "-O1", "-w", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", f"-I{headers}",
        f"-I{(source / MODULE).parent}", code, "-o", target, f"-L{sim}", "-lcudart")


def main():
    folder, sim = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = unpack(folder)
    site = pathlib.Path(importlib.util.find_spec("cupy_backends").origin).parent.parent
    wheel_module = next(site.glob(f"{MODULE}.*.so"))
    build(source, sim, folder / wheel_module.name)
    (folder / wheel_module.name).replace(wheel_module)
    (source / "tests").replace(folder / "tests")
    shutil.rmtree(source)


if __name__ == "__main__":
    main()
