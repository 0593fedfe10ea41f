// SPDX-License-Identifier: Apache-2.0
// libcistern-audit.so, for the variable LD_AUDIT (rtld-audit(7)): the loader announces each library
// that it has mapped and not yet bound. A library that was opened with RTLD_DEEPBIND would look in
// itself and in its dependencies first, past preloaded objects. So each symbol that the library
// takes from elsewhere, and that the preloaded object exports, is entered in the library's symbol
// table as found. That is what the library would get without RTLD_DEEPBIND. This covers pointers to
// functions as well as calls; la_symbind() would cover only calls.
//
// The loader gives this library a namespace of its own. It uses no C library, since a second copy
// would take thread-local storage that the object needs. So it finds the object by its file name,
// and the object's symbols by its table. The loader calls it on any thread, with its own locks
// held.
#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

// The compiler must not replace loops by calls of the C library.
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

namespace {

struct Library {
  const link_map* map;
  const char* strings;
  const ElfW(Sym) * symbols;
  const uint32_t* gnu_hash;
};

constinit Library object{};  // the preloaded one; no symbols before it is there
constinit bool running = false;

bool same(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b) {
    if (*a == '\0') return true;
  }
  return false;
}

bool begins(const char* text, const char* with) {
  for (; *with != '\0'; ++text, ++with) {
    if (*text != *with) return false;
  }
  return true;
}

const char* base_name(const link_map* map) {
  const char* base = map->l_name;
  for (const char* c = base; *c != '\0'; ++c) {
    if (*c == '/') base = c + 1;
  }
  return base;
}

// The loader announces a library before it has relocated it. Until then the addresses in its tables
// are relative.
template <typename Table>
const Table* table_at(const link_map* map, ElfW(Addr) value) {
  return reinterpret_cast<const Table*>(value < map->l_addr ? map->l_addr + value : value);
}

Library read(const link_map* map) {
  Library out{map, nullptr, nullptr, nullptr};
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_STRTAB) out.strings = table_at<char>(map, d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) out.symbols = table_at<ElfW(Sym)>(map, d->d_un.d_ptr);
    if (d->d_tag == DT_GNU_HASH) out.gnu_hash = table_at<uint32_t>(map, d->d_un.d_ptr);
  }
  return out;
}

// 0: the library does not export it. The table of a program at a fixed address also has functions
// of other libraries whose address the program takes: undefined, but with a value.
uintptr_t exported(const Library& library, const char* name) {
  if (library.gnu_hash == nullptr) return 0;
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const uint32_t buckets = library.gnu_hash[0], first = library.gnu_hash[1];
  const uint32_t* bucket = library.gnu_hash + 4 + library.gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t i = buckets == 0 ? 0 : bucket[hash % buckets];
  if (i < first || i == 0) return 0;
  for (;; ++i) {
    const ElfW(Sym)& symbol = library.symbols[i];
    if ((chain[i - first] | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
        same(library.strings + symbol.st_name, name)) {
      return library.map->l_addr + symbol.st_value;
    }
    if ((chain[i - first] & 1) != 0) return 0;
  }
}

// Calls of the C library, of a runtime and of the driver are bound as usual.
bool is_of_system(const link_map* map) {
  for (const char* name : {"libc.so", "libdl.so", "libstdc++.so", "libc++.so", "libpthread.so",
                           "libgcc_s.so", "libcuda.so"}) {
    if (begins(base_name(map), name)) return true;
  }
  return false;
}

// The object's definition of this name. 0 if the program, or an object that was preloaded before,
// has it too: that one comes first for everybody. An object with a malloc of its own keeps all
// functions that belong to it.
uintptr_t first_definition(const char* name) {
  const uintptr_t ours = exported(object, name);
  if (ours == 0) return 0;
  const bool of_driver = begins(name, "cu") || begins(name, "dl");
  for (const link_map* before = object.map->l_prev; before != nullptr; before = before->l_prev) {
    const Library library = read(before);
    if (exported(library, name) != 0) return 0;
    if (!of_driver && exported(library, "malloc") != 0) return 0;
  }
  return ours;
}

long protect(uintptr_t start, size_t bytes, long how) {
#if defined(__x86_64__)
  long result = 10;  // mprotect
  asm volatile("syscall"
               : "+a"(result)
               : "D"(start), "S"(bytes), "d"(how)
               : "rcx", "r11", "memory");
#else
  register long result asm("x0") = static_cast<long>(start);
  register long second asm("x1") = static_cast<long>(bytes);
  register long third asm("x2") = how;
  register long number asm("x8") = 226;
  asm volatile("svc #0" : "+r"(result) : "r"(second), "r"(third), "r"(number) : "memory");
#endif
  return result;
}

constexpr long kWrite = 2;

// How the loader has mapped the part of a library that an address lies in, which may hold code as
// well; 0 if its header does not say.
long protection_of(const link_map* map, uintptr_t address) {
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(map->l_addr);
  if (header == nullptr || header->e_ident[EI_MAG1] != ELFMAG1) return 0;
  const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(map->l_addr + header->e_phoff);
  for (size_t i = 0; i < header->e_phnum; ++i) {
    if (parts[i].p_type != PT_LOAD) continue;
    if (address - map->l_addr - parts[i].p_vaddr >= parts[i].p_memsz) continue;
    const unsigned flags = parts[i].p_flags;
    return ((flags & PF_R) != 0 ? 1 : 0) + ((flags & PF_W) != 0 ? 2 : 0) +
           ((flags & PF_X) != 0 ? 4 : 0);
  }
  return 0;
}

// Makes the entry local, so that the loader searches no other library for it, and absolute. The
// table lies in read-only pages; the page or two around the entry become private to this process.
// With larger pages the system refuses, and the library stays as it is.
void enter(const link_map* map, const ElfW(Sym) * symbol, uintptr_t value) {
  constexpr uintptr_t kPage = 4096;
  const auto at = reinterpret_cast<uintptr_t>(symbol);
  const uintptr_t start = at & ~(kPage - 1);
  const size_t bytes = (at + sizeof *symbol - start + kPage - 1) & ~(kPage - 1);
  const long as_mapped = protection_of(map, at);
  if (as_mapped == 0 || protect(start, bytes, as_mapped | kWrite) != 0) return;
  auto* entry = const_cast<ElfW(Sym)*>(symbol);
  entry->st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
  entry->st_other = STV_HIDDEN;
  entry->st_shndx = SHN_ABS;
  entry->st_value = value;
  protect(start, bytes, as_mapped);
}

void enter_all(const Library& library, const ElfW(Rela) * relocations, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Sym)* symbol = library.symbols + ELF64_R_SYM(relocations[i].r_info);
    if (symbol == library.symbols || symbol->st_shndx != SHN_UNDEF) continue;
    const uintptr_t ours = first_definition(library.strings + symbol->st_name);
    if (ours != 0) enter(library.map, symbol, ours);
  }
}

void bind_to_object(const link_map* map) {
  const Library library = read(map);
  const ElfW(Rela)* data = nullptr, *calls = nullptr;
  size_t data_bytes = 0, calls_bytes = 0;
  for (const ElfW(Dyn)* d = map->l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_RELA) data = table_at<ElfW(Rela)>(map, d->d_un.d_ptr);
    if (d->d_tag == DT_RELASZ) data_bytes = d->d_un.d_val;
    if (d->d_tag == DT_JMPREL) calls = table_at<ElfW(Rela)>(map, d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) calls_bytes = d->d_un.d_val;
  }
  if (library.symbols == nullptr || library.strings == nullptr) return;
  if (data != nullptr) enter_all(library, data, data_bytes);
  if (calls != nullptr) enter_all(library, calls, calls_bytes);
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] unsigned la_version(unsigned version) {
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

// The program and all libraries that it is linked with are loaded; later ones are opened.
[[gnu::visibility("default")]] void la_preinit(uintptr_t*) { running = true; }

// A library in another namespace has a driver of its own, which does not know what the object's
// driver gives out. It is left alone.
[[gnu::visibility("default")]] unsigned la_objopen(link_map* map, Lmid_t space, uintptr_t*) {
  if (space != LM_ID_BASE) return 0;
  const char* name = base_name(map);
  if (object.map == nullptr &&
      (same(name, "libcistern.so") || same(name, "libcistern-device.so"))) {
    object = read(map);
  } else if (running && object.map != nullptr && !is_of_system(map)) {
    bind_to_object(map);
  }
  return 0;
}
}
