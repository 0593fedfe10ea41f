# SPDX-License-Identifier: Apache-2.0
"""Builds resources.cc against RMM's headers and the simulated runtime.

The last release that is headers alone: the libraries of later ones, and RMM's Python modules, have NVIDIA's
runtime linked into them, which speaks with its driver through tables that nothing documents.

Usage: prepare.py FOLDER SIM, with FOLDER for what is made, and the folder of the simulated CUDA.
"""

import pathlib
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent


def main():
    folder, sim = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    include = site / "librmm/include"
    headers = [include, include / "rapids", include / "rapids/libcudacxx",
               site / "nvidia/cu13/include"]
    done = subprocess.run(
        ["c++", "-std=c++17", "-O1", "-w", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-DFMT_HEADER_ONLY",
         "-DSPDLOG_FMT_EXTERNAL", *(f"-I{path}" for path in headers), HERE / "resources.cc",
         include / "rmm/logger_impl/logger.cpp", "-o", folder / "resources", f"-L{sim}", "-lcudart", "-pthread"],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"c++ failed: {done.stderr.strip()[:2000]}")


if __name__ == "__main__":
    main()
