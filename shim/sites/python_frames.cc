// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/python_frames.h"

#include <atomic>
#include <cstddef>
#include <cstring>

#include "shim/entry/loader.h"
#include "shim/process/log.h"
#include "shim/process/names.h"

namespace cistern::shim {
namespace {

// CPython 3.11, where things lie: Include/cpython/pystate.h, internal/pycore_frame.h,
// cpython/code.h, cpython/unicodeobject.h.
struct Type;
struct Object {
  int64_t references;
  const Type* type;
};
struct Text {
  Object object;
  int64_t length;
  int64_t hash;
  uint32_t state;
  void* wide;
};
constexpr uint32_t kCompactAscii = 3u << 5;  // bits of Text::state
struct Code {
  Object object;
  int64_t size;
  void* before_flags[3];
  int32_t flags;
  int16_t warmup, line_entry_size;
  int32_t arguments[4];
  int32_t first_line;
  int32_t locals[5];
  void* names_of_locals[2];
  const Text* file;
  const Text* name;
  const Text* qualified_name;
  void* tables[4];
  int32_t first_traceable;
  void* extra;
  char instructions[1];
};
struct Frame {
  void* function;
  void* environment[3];
  const Code* code;
  void* object;
  const Frame* previous;
  const void* instruction;
};
struct FrameOfC {
  uint8_t tracing;
  const Frame* frame;
};
struct Thread {
  void* links[3];
  int32_t counts[7];
  const FrameOfC* current;
};
static_assert(offsetof(Code, first_line) == 72 && offsetof(Code, file) == 112 &&
              offsetof(Code, instructions) == 184 && offsetof(Thread, current) == 56);

struct Python {
  const Thread* (*this_thread_state)();
  int (*line_of)(const Code* code, int offset);
  const Type* code_type;
  const Type* text_type;
};

constinit Python python{};
constinit std::atomic<bool> found{false};
constinit std::atomic<uint64_t> looked{0};  // at so many loads and unloads

template <typename T>
bool find(const char* name, T*& out) {
  out = reinterpret_cast<T*>(first_definition(name));
  return out != nullptr;
}

bool look() {
  const char* (*version)() = nullptr;
  if (!find("Py_GetVersion", version)) return false;
  if (std::strncmp(version(), "3.11.", 5) != 0) {
    static constinit std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      log(config::LogLevel::kWarn,
          "the Python functions of call stacks are not known: this is CPython %.20s; 3.11 is known",
          version());
    }
    return false;
  }
  Python p{};
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
uint32_t number_of(const Text* text) {
  if (text == nullptr || text->object.type != python.text_type ||
      (text->state & kCompactAscii) != kCompactAscii || text->length <= 0) {
    return names().number("?");
  }
  return names().number(
      {reinterpret_cast<const char*>(text + 1), static_cast<size_t>(text->length)});
}

}  // namespace

uint64_t PythonCall::identity() const {
  const auto* c = static_cast<const Code*>(code);
  return reinterpret_cast<uint64_t>(code) ^ (reinterpret_cast<uint64_t>(instruction) << 20) ^
         reinterpret_cast<uint64_t>(c->qualified_name) * 31 ^
         static_cast<uint64_t>(c->first_line) << 44;
}

int python_calls(PythonCall* out, int most, uint64_t changes) {
  if (!have_python(changes)) return 0;
  const Thread* thread = python.this_thread_state();
  if (thread == nullptr || thread->current == nullptr) return 0;
  int count = 0;
  for (const Frame* f = thread->current->frame; f != nullptr && count < most; f = f->previous) {
    if (f->code == nullptr || f->code->object.type != python.code_type) break;
    out[count++] = {f->code, f->instruction};
  }
  return count;
}

alloc::Frame frame_of(const PythonCall& call) {
  const auto* code = static_cast<const Code*>(call.code);
  const ptrdiff_t offset = static_cast<const char*>(call.instruction) - code->instructions;
  const int line = python.line_of(code, static_cast<int>(offset));
  return {.file = number_of(code->file),
          .function = number_of(code->qualified_name),
          .line = line > 0 ? static_cast<uint32_t>(line) : 0,
          .offset = 0};
}

uint64_t address_in_python() {
  return found.load(std::memory_order_acquire) ? reinterpret_cast<uint64_t>(python.line_of) : 0;
}

}  // namespace cistern::shim
