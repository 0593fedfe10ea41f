// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace simcuda {
namespace {

constinit int g_file = -1;

// A line under construction; what does not fit is cut, the end of line always fits.
class Line {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int written = std::vsnprintf(text_ + used_, kRoom - used_, format, list);
    va_end(list);
    used_ = std::min(used_ + static_cast<size_t>(std::max(written, 0)), kRoom - 1);
  }

  void write_to(int file) {
    text_[used_] = '\n';
    const ssize_t written = ::write(file, text_, used_ + 1);
    static_cast<void>(written);  // a full disk costs trace lines, not the program
  }

 private:
  static constexpr size_t kRoom = 1000;
  char text_[kRoom + 1];
  size_t used_ = 0;
};

void add_out(Line& line, const Arg& arg, CUresult result) {
  if (arg.value == 0 || result != CUDA_SUCCESS) return line.add(" %s=-", arg.name);
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(static_cast<uintptr_t>(arg.value)), arg.size);
  if (arg.form == Arg::Form::kOutPointer) return line.add(" %s=0x%" PRIx64, arg.name, value);
  line.add(" %s=%" PRIu64, arg.name, value);
}

void add_arg(Line& line, const Arg& arg, CUresult result) {
  switch (arg.form) {
    case Arg::Form::kNumber:
      return line.add(" %s=%" PRIu64, arg.name, arg.value);
    case Arg::Form::kPointer:
      return line.add(" %s=0x%" PRIx64, arg.name, arg.value);
    case Arg::Form::kText: {
      const auto* value = reinterpret_cast<const char*>(static_cast<uintptr_t>(arg.value));
      return line.add(" %s=%s", arg.name, value == nullptr ? "-" : value);
    }
    case Arg::Form::kOutNumber:
    case Arg::Form::kOutPointer:
      return add_out(line, arg, result);
    case Arg::Form::kStream:
      return;  // goes to the end of the line
  }
}

// The stream argument of a call, null if it has none.
const Arg* stream_of(const Arg* args, int count) {
  for (int i = 0; i < count; ++i) {
    if (args[i].form == Arg::Form::kStream) return &args[i];
  }
  return nullptr;
}

void add_stream(Line& line, Call id, const Arg* arg) {
  if (arg == nullptr) return line.add(" stream=-");
  const bool per_thread_default = per_thread(info(id).kind);
  if (arg->value == reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD) ||
      (arg->value == 0 && per_thread_default)) {
    return line.add(" stream=per-thread");
  }
  if (arg->value <= reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY)) {
    return line.add(" stream=legacy");
  }
  line.add(" stream=0x%" PRIx64, arg->value);
}

}  // namespace

bool open_trace(const char* path) {
  g_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return g_file >= 0;
}

void trace(Call id, const Arg* args, int count, CUresult result) {
  Line line;
  line.add("%s", info(id).symbol);
  for (int i = 0; i < count; ++i) add_arg(line, args[i], result);
  line.add(" -> %d tid=%ld", static_cast<int>(result), syscall(SYS_gettid));
  add_stream(line, id, stream_of(args, count));
  line.write_to(g_file);
}

}  // namespace simcuda
