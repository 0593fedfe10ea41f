// SPDX-License-Identifier: Apache-2.0
#include "shim/entry/loader.h"

#include <dlfcn.h>
#include <elf.h>

#include <atomic>
#include <cstring>

// The addresses the assembly in dlsym_*.S jumps to.
extern "C" {
[[gnu::visibility("hidden")]] constinit std::atomic<void*> cistern_real_dlsym{nullptr};
[[gnu::visibility("hidden")]] constinit std::atomic<void*> cistern_real_dlvsym{nullptr};
}

namespace cistern::shim {
namespace {

// One object's dynamic symbol table.
struct Symbols {
  const ElfW(Sym) * table = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const ElfW(Half) * versions = nullptr;

  explicit Symbols(const link_map* object) {
    for (const ElfW(Dyn)* d = object->l_ld; d->d_tag != DT_NULL; ++d) {
      const void* p = pointer(object, d->d_un.d_ptr);
      if (d->d_tag == DT_SYMTAB) table = static_cast<const ElfW(Sym)*>(p);
      if (d->d_tag == DT_STRTAB) strings = static_cast<const char*>(p);
      if (d->d_tag == DT_GNU_HASH) gnu_hash = static_cast<const uint32_t*>(p);
      if (d->d_tag == DT_HASH) sysv_hash = static_cast<const uint32_t*>(p);
      if (d->d_tag == DT_VERSYM) versions = static_cast<const ElfW(Half)*>(p);
    }
  }

  // glibc has relocated these entries in place, except those of the vdso.
  static const void* pointer(const link_map* object, ElfW(Addr) value) {
    return reinterpret_cast<const void*>(value < object->l_addr ? object->l_addr + value : value);
  }

  bool is(uint32_t i, const char* name) const {
    constexpr ElfW(Half) kHidden = 0x8000;  // not the default version of the symbol
    const bool usable = table[i].st_shndx != SHN_UNDEF && table[i].st_value != 0;
    const bool shown = versions == nullptr || (versions[i] & kHidden) == 0;
    return usable && shown && same(strings + table[i].st_name, name);
  }

  // Not strcmp: a sanitizer's runtime asks dlsym before its own strcmp works.
  static bool same(const char* a, const char* b) {
    for (; *a == *b; ++a, ++b) {
      if (*a == '\0') return true;
    }
    return false;
  }

  const ElfW(Sym) * find(const char* name) const {
    if (table == nullptr || strings == nullptr) return nullptr;
    if (gnu_hash != nullptr) return find_gnu(name);
    return sysv_hash != nullptr ? find_sysv(name) : nullptr;
  }

  const ElfW(Sym) * find_gnu(const char* name) const {
    uint32_t hash = 5381;
    for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom_words = gnu_hash[2];
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash + 4);
    const auto* bucket = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    const uint32_t* chain = bucket + buckets;
    if (buckets == 0 || bucket[hash % buckets] < first) return nullptr;
    for (uint32_t i = bucket[hash % buckets];; ++i) {
      const uint32_t entry = chain[i - first];
      if ((entry | 1) == (hash | 1) && is(i, name)) return &table[i];
      if ((entry & 1) != 0) return nullptr;
    }
  }

  const ElfW(Sym) * find_sysv(const char* name) const {
    for (uint32_t i = 0, count = sysv_hash[1]; i < count; ++i) {
      if (is(i, name)) return &table[i];
    }
    return nullptr;
  }
};

// Threads that come here together find the same address, so none has to wait for another.
void* once(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = definition_after_us(name);
    slot.store(found, std::memory_order_release);
  }
  return found;
}

}  // namespace

void* real_dlsym(void* handle, const char* name) {
  using Function = void* (*)(void*, const char*);
  return reinterpret_cast<Function>(once(cistern_real_dlsym, "dlsym"))(handle, name);
}

void* real_dlvsym(void* handle, const char* name, const char* version) {
  using Function = void* (*)(void*, const char*, const char*);
  void* real = once(cistern_real_dlvsym, "dlvsym");
  return reinterpret_cast<Function>(real)(handle, name, version);
}

void* definition_in(const link_map* object, const char* name) {
  const ElfW(Sym)* symbol = Symbols(object).find(name);
  return symbol == nullptr ? nullptr : reinterpret_cast<void*>(object->l_addr + symbol->st_value);
}

void* definition_after_us(const char* name) {
  const link_map* self = object_of(reinterpret_cast<const void*>(&definition_after_us));
  void* found = nullptr;
  for (const link_map* object = self->l_next; object != nullptr && found == nullptr;
       object = object->l_next) {
    found = definition_in(object, name);
  }
  return found;
}

void find_real_lookups() {
  once(cistern_real_dlsym, "dlsym");
  once(cistern_real_dlvsym, "dlvsym");
}

link_map* object_of(const void* address) {
  Dl_info info;
  void* object = nullptr;
  if (dladdr1(address, &info, &object, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<link_map*>(object);
}

const char* base_name(const link_map* object) {
  const char* slash = strrchr(object->l_name, '/');
  return slash == nullptr ? object->l_name : slash + 1;
}

}  // namespace cistern::shim
