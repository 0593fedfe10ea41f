// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/describe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "allocator/base/keep_errno.h"
#include "allocator/base/mutex.h"
#include "allocator/record/symbols.h"
#include "shim/entry/loader.h"
#include "shim/process/names.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

using alloc::Frame;

// The files that were read last.
struct KnownFile {
  uint32_t name;
  bool readable;
  alloc::Symbols symbols;
};
constexpr int kKnownFiles = 64;

constinit alloc::Mutex mutex{};
constinit KnownFile known[kKnownFiles]{};
constinit int next_known = 0;

const alloc::Symbols* symbols_of(uint32_t file) {
  for (const KnownFile& k : known) {
    if (k.name == file) return k.readable ? &k.symbols : nullptr;
  }
  KnownFile& k = known[next_known++ % kKnownFiles];
  if (k.readable) k.symbols.close();
  k.name = file;
  k.readable = k.symbols.open(names().text(file));
  return k.readable ? &k.symbols : nullptr;
}

template <size_t kSize>
void copy(char (&out)[kSize], const char* text) {
  const size_t length = std::min(std::strlen(text), kSize - 1);
  std::memcpy(out, text, length);
  out[length] = '\0';
}

// What compilers append to the names of a function's clones and parts.
constexpr const char* kCloneSuffixes[] = {".isra.",     ".constprop.", ".part.",     ".cold",
                                          ".lto_priv.", ".llvm.",      ".localalias"};

void cut_off_clone(char* name) {
  for (const char* suffix : kCloneSuffixes) {
    if (char* found = std::strstr(name, suffix)) *found = '\0';
  }
}

// The answer of __cxa_demangle comes from malloc, whoever's that is.
void demangle(FunctionName* function) {
  const char* raw = function->symbol.name;
  if (raw[0] != '_' || raw[1] != 'Z') return;
  using Demangle = char*(const char*, char*, size_t*, int*);
  auto* ask = reinterpret_cast<Demangle*>(first_definition("__cxa_demangle"));
  auto* release = reinterpret_cast<void (*)(void*)>(first_definition("free"));
  if (ask == nullptr || release == nullptr) return;
  int status = 0;
  char* text = ask(raw, nullptr, nullptr, &status);
  if (text == nullptr) return;
  copy(function->readable, text);
  release(text);
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

}  // namespace

void find_symbol(const Frame& frame, Symbol* out) {
  out->name[0] = '\0';
  out->offset = 0;
  if (frame.python() || frame.file == 0) return;
  const alloc::KeepErrno keep;
  const NoCancel whole;
  // At exit it may be held by what a signal handler interrupted: then there is no name.
  const alloc::LockGuardAtExit guard(mutex);
  if (!guard) return;
  const alloc::Symbols* symbols = symbols_of(frame.file);
  uint64_t begin;
  const char* name = symbols == nullptr ? nullptr : symbols->find(frame.offset, &begin);
  if (name == nullptr) return;
  copy(out->name, name);
  cut_off_clone(out->name);
  out->offset = frame.offset - begin;
}

void find_function(const Frame& frame, FunctionName* out) {
  find_symbol(frame, &out->symbol);
  copy(out->readable, out->symbol.name);
  const alloc::KeepErrno keep;
  const NoCancel whole;
  demangle(out);
}

int describe_frame(const Frame& frame, char* out, size_t size) {
  const char* path = names().text(frame.file);
  const auto offset = static_cast<unsigned long long>(frame.offset);
  int length;
  if (frame.python()) {
    length = snprintf(out, size, "%s (%s:%u)", names().text(frame.function), path, frame.line);
  } else if (frame.file == 0) {
    length = snprintf(out, size, "0x%llx", offset);
  } else {
    FunctionName function;
    find_function(frame, &function);
    const char* file = base_name(path);
    length = function.readable[0] == '\0'
                 ? snprintf(out, size, "0x%llx (%s)", offset, file)
                 : snprintf(out, size, "%s+0x%llx (%s)", function.readable,
                            static_cast<unsigned long long>(function.symbol.offset), file);
  }
  return std::clamp(length, 0, static_cast<int>(size) - 1);
}

void reset_descriptions_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
