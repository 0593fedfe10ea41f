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
    return defines(i) && same(strings + table[i].st_name, name);
  }

  bool defines(uint32_t i) const {
    constexpr ElfW(Half) kHidden = 0x8000;  // not the default version of the symbol
    const bool usable = table[i].st_shndx != SHN_UNDEF && table[i].st_value != 0;
    return usable && (versions == nullptr || (versions[i] & kHidden) == 0);
  }

  // The number of entries in the table. A GNU hash table does not store it: the last entry is the
  // end of the chain that begins last.
  uint32_t count() const {
    if (table == nullptr || strings == nullptr) return 0;
    if (gnu_hash == nullptr) return sysv_hash != nullptr ? sysv_hash[1] : 0;
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash + 4);
    const auto* bucket = reinterpret_cast<const uint32_t*>(bloom + gnu_hash[2]);
    const uint32_t* chain = bucket + gnu_hash[0];
    uint32_t last = 0;
    for (uint32_t i = 0; i < gnu_hash[0]; ++i) last = last < bucket[i] ? bucket[i] : last;
    if (last < gnu_hash[1]) return 0;
    while ((chain[last - gnu_hash[1]] & 1) == 0) ++last;
    return last + 1;
  }

  // Not strcmp: a sanitizer's runtime asks dlsym before its own strcmp works.
  static bool same(const char* a, const char* b) {
    for (; *a == *b; ++a, ++b) {
      if (*a == '\0') return true;
    }
    return false;
  }

  const ElfW(Sym) * find(const SymbolName& name) const {
    if (table == nullptr || strings == nullptr) return nullptr;
    if (gnu_hash != nullptr) return find_gnu(name);
    return sysv_hash != nullptr ? find_sysv(name.text) : nullptr;
  }

  const ElfW(Sym) * find_gnu(const SymbolName& name) const {
    const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom_words = gnu_hash[2];
    const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash + 4);
    const auto* bucket = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    const uint32_t* chain = bucket + buckets;
    const uint32_t hash = name.hash;
    // The filter has two bits for each name that the object defines.
    constexpr uint32_t kBits = 8 * sizeof(ElfW(Addr));
    const ElfW(Addr) word = bloom[(hash / kBits) % bloom_words];
    const uint32_t second = hash >> gnu_hash[3];
    if (((word >> (hash % kBits)) & (word >> (second % kBits)) & 1) == 0) return nullptr;
    if (buckets == 0 || bucket[hash % buckets] < first) return nullptr;
    for (uint32_t i = bucket[hash % buckets];; ++i) {
      const uint32_t entry = chain[i - first];
      if ((entry | 1) == (hash | 1) && is(i, name.text)) return &table[i];
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

// Calls visit() with the index of each symbol that an object's relocations bind.
template <typename Visit>
void for_each_bound(const link_map* object, Visit visit) {
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  for (const ElfW(Dyn)* d = object->l_ld; d->d_tag != DT_NULL; ++d) {
    const auto* p = static_cast<const ElfW(Rela)*>(Symbols::pointer(object, d->d_un.d_ptr));
    if (d->d_tag == DT_RELA) tables[0] = p;
    if (d->d_tag == DT_RELASZ) bytes[0] = d->d_un.d_val;
    if (d->d_tag == DT_JMPREL) tables[1] = p;
    if (d->d_tag == DT_PLTRELSZ) bytes[1] = d->d_un.d_val;
  }
  for (int i = 0; i < 2; ++i) {
    const size_t count = tables[i] == nullptr ? 0 : bytes[i] / sizeof(ElfW(Rela));
    for (const ElfW(Rela)* r = tables[i]; r != tables[i] + count; ++r) {
      if (const auto symbol = static_cast<uint32_t>(ELF64_R_SYM(r->r_info)); symbol != 0) {
        visit(symbol);
      }
    }
  }
}

// The last object before this one that is `from` or defines the symbol; nullptr if there is none.
// Objects before this one were loaded at process start and stay: no lock is needed.
const link_map* definition_before_us(const char* name, const link_map* from) {
  const link_map* object = object_of(reinterpret_cast<const void*>(&definition_before_us))->l_prev;
  while (object != nullptr && object != from && definition_in(object, name) == nullptr) {
    object = object->l_prev;
  }
  return object;
}

// Threads that look this up at the same time find the same address, so none has to wait.
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

const link_map* definer_after_us(const char* name) {
  const link_map* object = object_of(reinterpret_cast<const void*>(&definer_after_us))->l_next;
  while (object != nullptr && definition_in(object, name) == nullptr) object = object->l_next;
  return object;
}

void* definition_after_us(const char* name) {
  const link_map* object = definer_after_us(name);
  return object == nullptr ? nullptr : definition_in(object, name);
}

link_map object_at(const dl_phdr_info& info) {
  link_map object{};
  object.l_addr = info.dlpi_addr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info.dlpi_phdr[i];
    if (part.p_type != PT_DYNAMIC) continue;
    object.l_ld = reinterpret_cast<ElfW(Dyn)*>(info.dlpi_addr + part.p_vaddr);
  }
  return object;
}

void* first_definition(const char* name) { return first_definition_beside(name, name); }

void* first_definition_beside(const char* beside, const char* name) {
  struct Search {
    const char* beside;
    const char* name;
    void* found;
  } search{beside, name, nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        const link_map object = object_at(*info);
        if (object.l_ld != nullptr && definition_in(&object, wanted->beside) != nullptr) {
          wanted->found = definition_in(&object, wanted->name);
        }
        return wanted->found != nullptr ? 1 : 0;
      },
      &search);
  return search.found;
}

bool is_next_definition_ours(const void* caller, const char* name) {
  const link_map* from = object_of(caller);
  return from != nullptr && definition_before_us(name, from) == from;
}

bool is_first_definition_ours(const char* name) {
  return definition_before_us(name, nullptr) == nullptr;
}

void definitions_in(const link_map* object, std::span<const SymbolName> names, void** out) {
  const Symbols symbols(object);
  for (size_t i = 0; i < names.size(); ++i) {
    const ElfW(Sym)* symbol = out[i] != nullptr ? nullptr : symbols.find(names[i]);
    if (symbol != nullptr) out[i] = reinterpret_cast<void*>(object->l_addr + symbol->st_value);
  }
}

void definitions_after_us(std::span<const SymbolName> names, void** out) {
  const link_map* self = object_of(reinterpret_cast<const void*>(&definitions_after_us));
  for (const link_map* object = self->l_next; object != nullptr; object = object->l_next) {
    definitions_in(object, names, out);
  }
}

void for_each_definition(const link_map* object, const SeeDefinition& see) {
  const Symbols symbols(object);
  for (uint32_t i = 1, n = symbols.count(); i < n; ++i) {
    const ElfW(Sym)& symbol = symbols.table[i];
    if (!symbols.defines(i)) continue;
    see.see(see.data, symbols.strings + symbol.st_name,
            reinterpret_cast<void*>(object->l_addr + symbol.st_value));
  }
}

const char* first_link(const link_map* object, bool (*wanted)(const char* name)) {
  const Symbols symbols(object);
  if (symbols.table == nullptr || symbols.strings == nullptr) return nullptr;
  const char* found = nullptr;
  const auto look = [&](uint32_t i) {
    const ElfW(Sym)& symbol = symbols.table[i];
    const char* name = symbols.strings + symbol.st_name;
    if (found == nullptr && symbol.st_shndx == SHN_UNDEF && wanted(name)) found = name;
  };
  // A GNU hash table begins behind the undefined symbols. But in an object that defines no symbol,
  // it begins at 1. In a program at a fixed address it also contains undefined functions whose
  // address the program takes.
  const uint32_t* hash = symbols.gnu_hash;
  const bool tells = hash != nullptr ? hash[1] > 1 : symbols.sysv_hash != nullptr;
  const bool some_behind = hash == nullptr || object->l_addr == 0;
  const uint32_t count = !tells ? 0 : some_behind ? symbols.count() : hash[1];
  for (uint32_t i = 1; i < count; ++i) look(i);
  if (!tells) for_each_bound(object, look);
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

// The ELF header lies where the object was loaded.
bool lies_in(const link_map* object, const void* address) {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(object->l_addr);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    return object_of(address) == object;
  }
  const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(object->l_addr + header->e_phoff);
  const auto offset = reinterpret_cast<ElfW(Addr)>(address) - object->l_addr;
  for (size_t i = 0; i < header->e_phnum; ++i) {
    const ElfW(Phdr)& part = parts[i];
    if (part.p_type == PT_LOAD && offset - part.p_vaddr < part.p_memsz) return true;
  }
  return false;
}

bool is_named(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_saddr == address;
}

const char* base_name(const link_map* object) {
  const char* slash = strrchr(object->l_name, '/');
  return slash == nullptr ? object->l_name : slash + 1;
}

}  // namespace cistern::shim
