#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Damaged ELF files against their reader, under AddressSanitizer and UBSan whatever the build at hand.
# Usage: elf_fuzz_test.sh [SEED [NUMBER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CXX:-c++}" -std=c++20 -O1 -g -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=all -I. \
  tests/fuzz/elf_fuzz.cc config/tool/elf.cc -o "$folder/elf_fuzz"
"$folder/elf_fuzz" "$@"
