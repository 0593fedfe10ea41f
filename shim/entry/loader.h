// SPDX-License-Identifier: Apache-2.0
// The real dlsym and dlvsym behind those that Cistern exports, and look-ups that read the loader's
// list of objects without calling these two. Any thread.
#pragma once

#include <link.h>

#include <cstdint>
#include <span>

namespace cistern::shim {

// The next definitions of dlsym and dlvsym in the link map after this object: libc's, or those of
// another preloaded tool.
void* real_dlsym(void* handle, const char* name);
void* real_dlvsym(void* handle, const char* name, const char* version);

// Finds both, unless that was done: the assembly in dlsym_*.S jumps to them without a check.
void find_real_lookups();

// The address at which `object` defines a symbol; the first definition in the link map after
// Cistern's own object. nullptr if there is none. Unlike dlsym they leave dlerror() alone: the
// program may read it later.
void* definition_in(const link_map* object, const char* name);
void* definition_after_us(const char* name);

// The first definition in any loaded object, also in those opened RTLD_LOCAL; nullptr if there is
// none. Takes no lock that a thread may hold while it runs the constructors of libraries.
void* first_definition(const char* name);

// The definition of `name` in the first object that defines `beside` as well; else nullptr.
void* first_definition_beside(const char* beside, const char* name);

// Whether Cistern's definition of `name`, which must exist, is the next one after the object that
// holds `caller`; whether it is the first one of all.
bool is_next_definition_ours(const void* caller, const char* name);
bool is_first_definition_ours(const char* name);

// The first object in the link map after Cistern's that defines a symbol; nullptr if there is none.
const link_map* definer_after_us(const char* name);

// Look up many names at once, in one pass over each object. out[i] gets the definition of names[i],
// unless it is not null already. The hash filter of an object rejects most names without reading
// its symbols.
struct SymbolName {
  const char* text;
  uint32_t hash;

  // NOLINTNEXTLINE(google-explicit-constructor): a name is written as its text
  constexpr SymbolName(const char* name) : text(name), hash(5381) {
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  }
};
void definitions_in(const link_map* object, std::span<const SymbolName> names, void** out);
void definitions_after_us(std::span<const SymbolName> names, void** out);

// Calls see() for every symbol that an object defines.
struct SeeDefinition {
  void (*see)(void* data, const char* name, void* address);
  void* data;
};
void for_each_definition(const link_map* object, const SeeDefinition& see);

// The first of an object's undefined symbols for whose name wanted() is true; nullptr if there is
// none.
const char* first_link(const link_map* object, bool (*wanted)(const char* name));

// The loaded object an address lies in, or nullptr. Usable as a dlopen handle.
link_map* object_of(const void* address);

// Whether an address lies in `object`. Does not call the loader, whose lock another thread may hold
// while it runs a constructor that waits for the calling thread.
bool lies_in(const link_map* object, const void* address);

// A link_map for an object from dl_iterate_phdr(): only its address and its dynamic section are
// set.
link_map object_at(const dl_phdr_info& info);

// Whether an object exports exactly this address under some name.
bool is_named(const void* address);

// The last component of an object's file name.
const char* base_name(const link_map* object);

}  // namespace cistern::shim
