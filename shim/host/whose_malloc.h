// SPDX-License-Identifier: Apache-2.0
// Whose malloc serves the program. If another object's malloc comes before ours (the program's own,
// or that of a library preloaded before), ours is never called. But functions of the family that
// the other object lacks are called: they forward each call to the next definition, in the C
// library, which works with any malloc. Any thread; determined once, at load.
#pragma once

#include "shim/entry/loader.h"

namespace cistern::shim {

bool malloc_is_ours();

// Whether C++'s operators new and delete are ours: malloc is, and no object but a C++ runtime, or
// one that brings a malloc, too, has operators of its own, which are the program's.
bool operators_are_ours();

// The function of that name after ours; nullptr if there is none.
template <typename Function>
Function* next_of_family(const char* name) {
  return reinterpret_cast<Function*>(definition_after_us(name));
}

}  // namespace cistern::shim
