// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/sites.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "allocator/record/program_code.h"
#include "shim/entry/loader.h"
#include "shim/process/log.h"
#include "shim/process/no_cancel.h"
#include "shim/process/thread.h"

namespace cistern::shim {
namespace {

// Offsets in bytes in CPython's objects, from Include/cpython/pystate.h, internal/pycore_frame.h,
// cpython/code.h and cpython/unicodeobject.h. A version keeps them from its first release on.
struct Layout {
  const char* version;  // as Py_GetVersion() begins
  uint8_t thread_top;   // in PyThreadState: the innermost frame, or the _PyCFrame that has it
  uint8_t c_frame_top;  // in that _PyCFrame; kNone: the version has none
  struct {
    uint8_t code, previous, instruction, owner;
  } frame;
  struct {
    uint8_t first_line, file, qualified_name, instructions;
  } code;
  uint8_t text_characters;  // in PyASCIIObject, whose other offsets never differ
};
constexpr uint8_t kNone = 0xFF;
constexpr Layout kLayouts[] = {
    {"3.11.", 56, 8, {32, 48, 56, 69}, {72, 112, 128, 184}, 48},
    {"3.12.", 56, 0, {0, 8, 56, 70}, {68, 112, 128, 192}, 40},
    {"3.13.", 72, kNone, {0, 8, 56, 70}, {68, 112, 128, 200}, 40},
};
constexpr const char* kKnownVersions = "3.11, 3.12 and 3.13 are known";
// A build without the GIL has a different object layout. Its version says so.
constexpr const char* kOtherObjects = "free-threading";
// FRAME_OWNED_BY_CSTACK: the frame where C entered the interpreter. No frame has it before 3.12.
constexpr uint8_t kEntered = 3;

template <typename T>
T at(const void* begin, uint8_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(begin) + offset, sizeof value);
  return value;
}

constexpr uint8_t kObjectType = 8;
constexpr uint8_t kTextLength = 16;
constexpr uint8_t kTextState = 32;
constexpr uint32_t kCompactAscii = 3u << 5;  // bits of the state

struct Python {
  const void* (*this_thread_state)();
  int (*line_of)(const void* code, int offset);
  const void* code_type;
  const void* text_type;
  const Layout* layout;
};

constinit Python python{};
constinit std::atomic<bool> found{false};
constinit std::atomic<uint64_t> looked{0};  // the loads and unloads at the last look

template <typename T>
bool find(const char* name, T*& out) {
  out = reinterpret_cast<T*>(first_definition(name));
  return out != nullptr;
}

const Layout* layout_of(const char* version) {
  if (std::strstr(version, kOtherObjects) != nullptr) return nullptr;
  for (const Layout& l : kLayouts) {
    if (std::strncmp(version, l.version, std::strlen(l.version)) == 0) return &l;
  }
  return nullptr;
}

bool look() {
  const char* (*version)() = nullptr;
  Python p{};
  if (!find("Py_GetVersion", version)) return false;
  p.layout = layout_of(version());
  if (p.layout == nullptr) {
    static constinit std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      const char* text = version();  // "3.11.2 (main, ...) [...]"
      const char* rest = std::strstr(text, " (");
      log(config::LogLevel::kWarn, "call stacks lack Python functions: this is CPython %.*s; %s",
          rest == nullptr ? 40 : static_cast<int>(rest - text), text, kKnownVersions);
    }
    return false;
  }
  if (!find("PyGILState_GetThisThreadState", p.this_thread_state) ||
      !find("PyCode_Addr2Line", p.line_of) || !find("PyCode_Type", p.code_type) ||
      !find("PyUnicode_Type", p.text_type)) {
    return false;
  }
  python = p;
  return true;
}

// Only the first thread looks; until it has found Python, other threads go without.
bool have_python(uint64_t changes) {
  if (found.load(std::memory_order_acquire)) return true;
  if (looked.exchange(changes, std::memory_order_acq_rel) == changes || !look()) return false;
  found.store(true, std::memory_order_release);
  return true;
}

// A name that is not ASCII is stored in another form.
uint32_t number_of(const void* text) {
  if (text == nullptr || at<const void*>(text, kObjectType) != python.text_type ||
      (at<uint32_t>(text, kTextState) & kCompactAscii) != kCompactAscii ||
      at<int64_t>(text, kTextLength) <= 0) {
    return names().number("?");
  }
  return names().number({static_cast<const char*>(text) + python.layout->text_characters,
                         static_cast<size_t>(at<int64_t>(text, kTextLength))});
}

const void* innermost_frame(const void* thread) {
  const Layout& l = *python.layout;
  const void* top = at<const void*>(thread, l.thread_top);
  return top == nullptr || l.c_frame_top == kNone ? top : at<const void*>(top, l.c_frame_top);
}

}  // namespace

uint64_t PythonCall::identity() const {
  const Layout& l = *python.layout;
  return reinterpret_cast<uint64_t>(code) ^ (reinterpret_cast<uint64_t>(instruction) << 20) ^
         at<uint64_t>(code, l.code.qualified_name) * 31 ^
         static_cast<uint64_t>(at<uint32_t>(code, l.code.first_line)) << 44;
}

int python_calls(PythonCall* out, int most, uint64_t changes) {
  if (!have_python(changes)) return 0;
  const void* thread = python.this_thread_state();
  if (thread == nullptr) return 0;
  const Layout& l = *python.layout;
  int count = 0;
  for (const void* f = innermost_frame(thread); f != nullptr && count < most;
       f = at<const void*>(f, l.frame.previous)) {
    if (at<uint8_t>(f, l.frame.owner) == kEntered) continue;
    const void* code = at<const void*>(f, l.frame.code);
    if (code == nullptr || at<const void*>(code, kObjectType) != python.code_type) break;
    out[count++] = {code, at<const void*>(f, l.frame.instruction)};
  }
  return count;
}

alloc::Frame frame_of(const PythonCall& call) {
  const Layout& l = *python.layout;
  const ptrdiff_t offset = static_cast<const char*>(call.instruction) -
                           (static_cast<const char*>(call.code) + l.code.instructions);
  const int line = python.line_of(call.code, static_cast<int>(offset));
  return {.file = number_of(at<const void*>(call.code, l.code.file)),
          .function = number_of(at<const void*>(call.code, l.code.qualified_name)),
          .line = line > 0 ? static_cast<uint32_t>(line) : 0,
          .offset = 0};
}

uint64_t address_in_python() {
  return found.load(std::memory_order_acquire) ? reinterpret_cast<uint64_t>(python.line_of) : 0;
}

namespace {

using alloc::Frame;

// The files whose symbols were read last.
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

// The suffixes that compilers append to the names of a function's clones and parts.
constexpr const char* kCloneSuffixes[] = {".isra.",     ".constprop.", ".part.",     ".cold",
                                          ".lto_priv.", ".llvm.",      ".localalias"};

void cut_off_clone(char* name) {
  for (const char* suffix : kCloneSuffixes) {
    if (char* at_suffix = std::strstr(name, suffix)) *at_suffix = '\0';
  }
}

// __cxa_demangle returns memory of the process's malloc, so the process's free() must release it.
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
  // At exit a signal handler may have interrupted the holder of the lock: then there is no name.
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
