# SPDX-License-Identifier: Apache-2.0
"""What functions NVIDIA's driver has, and what they take: as the headers of a toolkit declare them.

Three sources: the installed toolkit, the newest one that the package index has (its headers only, fetched into
the build folder once), and cuda-names.txt, a list of the names for machines that reach no index.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "drivers"))

import fetch  # noqa: E402

HEADERS = ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")  # some packages have only the first
# Headers of graphics libraries need not be installed: functions can be read without their types.
GRAPHICS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
NAMES = ROOT / "tests" / "hygiene" / "cuda-names.txt"


class Toolkit:
    """`functions`: the types of each function's parameters, by exact exported symbol."""

    def __init__(self, include):
        self.include = pathlib.Path(include)
        with tempfile.TemporaryDirectory() as folder:
            for name in GRAPHICS:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.touch()
            here = [header for header in HEADERS if (self.include / header).exists()]
            text = self._preprocessed(folder, "".join(f"#include <{header}>\n" for header in here))
        self.version = int(re.search(r"^version (\d+)$", text, re.M)[1])
        # Each version of a function has a name of its own; a function pointer's type has none here.
        declared = re.findall(r"CUresult\s+(cu[A-Z]\w*)\s*\(([^;]*)\)\s*;", text)
        self.functions = {name: tuple(parameters.split(",")) for name, parameters in declared}

    def _preprocessed(self, folder, includes):
        command = ["g++", "-E", "-P", "-x", "c++", "-D__CUDA_API_VERSION_INTERNAL", f"-I{folder}", f"-I{self.include}", "-"]
        return subprocess.run(command, input=f"{includes}version CUDA_VERSION\n", check=True, capture_output=True,
                              text=True).stdout

    def takes(self, name, kind):
        """Whether it is given something of the type by value, or a list of it: not a place for one to be written to."""
        pattern = re.compile(rf"(^|\s)(const\s+)?{kind}(\s+\w+|\s*)$|const\s+{kind}\s*\*")
        return any(pattern.search(parameter.strip()) for parameter in self.functions.get(name, ()))


def newest(build):
    """The newest toolkit's headers, and why there are none."""
    missing = fetch.obtain(build / "newest", parts=((fetch.fetch_runtimes, fetch.NEWEST),))
    if missing:
        return None, missing["toolkit"]
    [include] = (build / "newest" / "toolkit" / "nvidia").glob("*/include")
    return Toolkit(include), ""


def kept():
    """The names of the list."""
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    return {name for line in lines if not line.startswith("#") for name in line.split()}


def keep(toolkit):
    """Writes the list anew, with what the toolkit declares; nothing that is in it goes."""
    head, undeclared = NAMES.read_text(encoding="utf-8").split(UNDECLARED)
    comments = [line for line in head.splitlines() if line.startswith("#")]
    lines = [""]
    for name in sorted((kept() | set(toolkit.functions)) - set(undeclared.split())):
        if len(lines[-1]) + len(name) > 118:
            lines.append("")
        lines[-1] = f"{lines[-1]} {name}".strip()
    NAMES.write_text("\n".join([*comments, *lines, UNDECLARED]) + undeclared, encoding="utf-8")


UNDECLARED = "# Declared by no header: NVIDIA's runtimes ask for them, or its drivers export them."
