// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/python_frames.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/entry/loader.h"
#include "shim/process/log.h"
#include "shim/process/names.h"

namespace cistern::shim {
namespace {

// Where things lie, in bytes: Include/cpython/pystate.h, internal/pycore_frame.h, cpython/code.h,
// cpython/unicodeobject.h of a version. A version keeps to that from its first release on.
struct Layout {
  const char* version;  // as Py_GetVersion() begins
  uint8_t thread_top;   // in PyThreadState: the innermost frame, or the _PyCFrame that has it
  uint8_t c_frame_top;  // in that _PyCFrame; kNone where there is none
  struct {
    uint8_t code, previous, instruction, owner;
  } frame;
  struct {
    uint8_t first_line, file, qualified_name, instructions;
  } code;
  uint8_t text_characters;  // in PyASCIIObject, which has the rest alike
};
constexpr uint8_t kNone = 0xFF;
constexpr Layout kLayouts[] = {
    {"3.11.", 56, 8, {32, 48, 56, 69}, {72, 112, 128, 184}, 48},
    {"3.12.", 56, 0, {0, 8, 56, 70}, {68, 112, 128, 192}, 40},
    {"3.13.", 72, kNone, {0, 8, 56, 70}, {68, 112, 128, 200}, 40},
};
constexpr const char* kKnownVersions = "3.11, 3.12 and 3.13 are known";
// A build without the GIL has other objects, and says so in its version.
constexpr const char* kOtherObjects = "free-threading";
// FRAME_OWNED_BY_CSTACK: where C entered the interpreter. None is so before 3.12.
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
constinit std::atomic<uint64_t> looked{0};  // at so many loads and unloads

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

// Only the first thread looks; the others do without until it has found.
bool have_python(uint64_t changes) {
  if (found.load(std::memory_order_acquire)) return true;
  if (looked.exchange(changes, std::memory_order_acq_rel) == changes || !look()) return false;
  found.store(true, std::memory_order_release);
  return true;
}

// Names that are not ASCII are kept in other forms.
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

}  // namespace cistern::shim
