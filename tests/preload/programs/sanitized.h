// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer's runtime is in the process. The program need not be compiled with one: the
// object and the simulated CUDA beneath it may be.
#pragma once

#include <dlfcn.h>

inline bool with_tsan() { return dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr; }
inline bool with_asan() { return dlsym(RTLD_DEFAULT, "__asan_init") != nullptr; }
