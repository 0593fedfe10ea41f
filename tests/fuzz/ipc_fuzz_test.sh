#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Damaged messages between processes that share a block, under AddressSanitizer and UBSan whatever the build at hand.
# Usage: ipc_fuzz_test.sh [SEED [NUMBER]]
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${CXX:-c++}" -std=c++20 -O1 -g -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined -fno-sanitize-recover=all -I. -Ishim/toolkit \
  -isystem "${CUDA_INCLUDE:-/usr/local/cuda/include}" -pthread tests/fuzz/ipc_fuzz.cc shim/ipc/*.cc \
  shim/process/own_thread.cc allocator/base/os.cc -o "$folder/ipc_fuzz"
"$folder/ipc_fuzz" "$@"
