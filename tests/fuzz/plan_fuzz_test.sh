#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Damaged plans and tables against their readers, under AddressSanitizer and UBSan whatever the build at hand.
# Usage: plan_fuzz_test.sh [SEED [NUMBER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CXX:-c++}" -std=c++20 -O0 -g1 -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=all -I. -pthread \
  tests/fuzz/plan_fuzz.cc allocator/plan/*.cc allocator/plan/tool/{input,origins,output,table}.cc allocator/record/{encoding,program_code,symbols}.cc \
  allocator/record/tool/{events,lines,lives,functions,order,picture,reader,text}.cc allocator/base/os.cc -o "$folder/plan_fuzz"
"$folder/plan_fuzz" "$@"
