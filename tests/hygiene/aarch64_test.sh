#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The assembly assembles for aarch64 too. It is never run there; skipped where no cross assembler
# is at hand.
set -euo pipefail

source_dir=$(cd "$(dirname "$0")/../.." && pwd)
if command -v clang >/dev/null; then
  assemble=(clang --target=aarch64-linux-gnu)
elif command -v aarch64-linux-gnu-gcc >/dev/null; then
  assemble=(aarch64-linux-gnu-gcc)
else
  echo "skipped: neither clang nor aarch64-linux-gnu-gcc is installed"
  exit 77
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for file in "$source_dir"/shim/entry/*.S; do
  "${assemble[@]}" -I"$source_dir" -c "$file" -o "$out/$(basename "$file").o"
done
# The files of other architectures assemble to nothing; one must define both functions.
for name in dlsym dlvsym; do
  readelf -sW "$out"/*.o | grep -E "FUNC +GLOBAL .* $name$" || { echo "$name is missing"; exit 1; }
done
