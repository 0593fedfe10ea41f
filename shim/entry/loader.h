// SPDX-License-Identifier: Apache-2.0
// The real dlsym and dlvsym behind those that Cistern exports, and look-ups in the loader's list of
// objects that do not need them. Any thread.
#pragma once

#include <link.h>

#include <cstdint>
#include <span>

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

// The first definition of all, also in objects opened RTLD_LOCAL; nullptr if nowhere. Takes no lock
// that a thread may hold while it runs constructors of libraries.
void* first_definition(const char* name);

// The same in the first object that also defines `beside`.
void* first_definition_beside(const char* beside, const char* name);

// Whether this object's definition, which there has to be, is the next one after the object that
// `caller` is in, and the first one of all.
bool is_next_definition_ours(const void* caller, const char* name);
bool is_first_definition_ours(const char* name);

// The first object in the link map after this one that defines a symbol; nullptr if there is none.
const link_map* definer_after_us(const char* name);

// The same for many names at once, in one pass over each object: out[i] is for names[i], and left
// alone if it is not null. The tables of an object are found once, and its filter rejects most
// names by their hashes alone.
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

// The first name for which wanted() is true among the symbols that an object is linked with and
// does not define itself; nullptr if there is none.
const char* first_link(const link_map* object, bool (*wanted)(const char* name));

// The loaded object an address lies in, or nullptr. Usable as a dlopen handle.
link_map* object_of(const void* address);

// Whether an address lies in this object. Asks the loader nothing: a constructor that is running
// may wait for the thread that asks.
bool lies_in(const link_map* object, const void* address);

// The object of dl_iterate_phdr(), with no more than that tells: its address and dynamic section.
link_map object_at(const dl_phdr_info& info);

// Whether an object exports exactly this address under some name.
bool is_named(const void* address);

// The last component of an object's file name.
const char* base_name(const link_map* object);

}  // namespace cistern::shim
