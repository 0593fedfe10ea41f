// SPDX-License-Identifier: Apache-2.0
//
// The runner of the unit tests. Catch2's main is compiled here alone, because it takes longer than
// all the tests together. With Catch2 v3 the library brings its own main and this file is empty.
#define CATCH_CONFIG_MAIN
#include "tests/catch.h"
