// SPDX-License-Identifier: Apache-2.0
// The real dlsym and dlvsym, behind the ones that Cistern exports, and look-ups in the loader's
// list of objects that do without them. Any thread.
#pragma once

#include <link.h>

namespace cistern::shim {

// The next definitions of dlsym and dlvsym in the link map after this object: libc's, or those of
// another preloaded tool. dlsym(RTLD_NEXT) cannot be asked, it is the very function looked for.
void* real_dlsym(void* handle, const char* name);
void* real_dlvsym(void* handle, const char* name, const char* version);

// Makes sure both are known: the assembly in dlsym_*.S jumps to them without asking.
void find_real_lookups();

// Where an object defines a symbol, and the first definition in the link map after this object;
// nullptr if nowhere. Unlike dlsym they leave dlerror() alone: the program may yet want to read it.
void* definition_in(const link_map* object, const char* name);
void* definition_after_us(const char* name);

// The loaded object an address lies in, or nullptr. Usable as a dlopen handle.
link_map* object_of(const void* address);

// The last component of an object's file name.
const char* base_name(const link_map* object);

}  // namespace cistern::shim
