#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Damaged recordings against their reader, under AddressSanitizer and UBSan whatever the build at hand.
# Usage: recording_fuzz_test.sh [SEED [NUMBER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CXX:-c++}" -std=c++20 -O0 -g1 -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=all -I. -pthread \
  tests/fuzz/recording_fuzz.cc allocator/record/{recorder,encoding,phases,program_code,symbols}.cc \
  allocator/record/tool/{analysis,automatic_phases,events,functions,lines,lives,order,reader,summary,text}.cc allocator/base/os.cc -o "$folder/recording_fuzz"
"$folder/recording_fuzz" "$@"
