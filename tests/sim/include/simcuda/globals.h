// SPDX-License-Identifier: Apache-2.0
//
// Variables of a module that the simulated driver cannot find in its image, because the image is
// compressed or none that it can read. Found with dlsym in the libcuda the process uses: on a real
// driver there is nothing to find. Any thread.
#pragma once

#include <cuda.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// A loaded library has a variable of this name and size, which begins zeroed. One that its image
// declares stays as declared.
void simcuda_add_global(CUlibrary library, const char* name, size_t bytes);

#ifdef __cplusplus
}
#endif
