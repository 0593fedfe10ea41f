#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Made-up settings against the parser, under AddressSanitizer and UBSan whatever the build at hand.
# Usage: config_fuzz_test.sh [SEED [NUMBER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CXX:-c++}" -std=c++20 -O0 -g1 -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined \
  -fno-sanitize-recover=all -I. tests/fuzz/config_fuzz.cc config/*.cc -o "$folder/config_fuzz"
"$folder/config_fuzz" "$@"
