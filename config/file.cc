// SPDX-License-Identifier: Apache-2.0
//
// Gathering from the file that CISTERN_CONFIG names. Lines are NAME=value, or --FLAGS_name=value as
// in a gflags flag file; blanks around names and values do not count; # at the start of a line or
// after a blank begins a comment. The file is read straight into the storage of the Loaded and the
// values are kept where they lie. By system calls, since it may be read inside the first malloc,
// where a wrapper of open() that allocates would wait for itself.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config/collect.h"
#include "config/parse.h"

namespace cistern::config {
namespace {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view without_comment(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || is_blank(line[i - 1]))) return part(line, 0, i);
  }
  return line;
}

bool is_name(std::string_view text) {
  for (const char c : text) {
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    if (!letter && !(c >= '0' && c <= '9')) return false;
  }
  return !text.empty();
}

bool fail_file(const char* path, const char* why, Loaded& out) {
  LineWriter(out.error)
      .text("cistern: error: CISTERN_CONFIG cannot be read; value seen ")
      .quoted(path)
      .text(": ")
      .text(why)
      .text("; allowed: a readable file of at most ")
      .number(kMaxFileBytes)
      .text(" bytes; example: CISTERN_CONFIG=/etc/cistern.conf");
  return false;
}

// All of an open file; -1 when it does not fit or cannot be read.
ssize_t read_all(int fd, char* to, size_t room) {
  size_t used = 0;
  while (used < room) {
    const ssize_t got = ::syscall(SYS_read, fd, to + used, room - used);
    if (got == 0) return static_cast<ssize_t>(used);
    if (got < 0 && errno != EINTR) return -1;
    if (got > 0) used += static_cast<size_t>(got);
  }
  errno = EFBIG;
  return -1;
}

// Into the storage, with room for a NUL behind.
bool read_file(const char* path, Loaded& out, std::string_view& text) {
  // O_NONBLOCK: a pipe or a terminal must not hold up the start of a program.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, kFlags));
  if (fd < 0) return fail_file(path, strerrordesc_np(errno), out);
  struct stat info;
  const bool regular = ::syscall(SYS_fstat, fd, &info) == 0 && S_ISREG(info.st_mode);
  char* to = out.storage + out.storage_used;
  const size_t free = kStorageBytes - out.storage_used;
  const size_t left = free == 0 ? 0 : free - 1;
  const size_t room = left < kMaxFileBytes + 1 ? left : kMaxFileBytes + 1;
  const ssize_t length = regular ? read_all(fd, to, room) : -1;
  const int why = errno;
  ::syscall(SYS_close, fd);
  if (!regular) return fail_file(path, "not a regular file", out);
  if (length < 0) return fail_file(path, strerrordesc_np(why), out);
  text = {to, static_cast<size_t>(length)};
  out.storage_used += text.size() + 1;
  return true;
}

struct Where {
  const char* path;
  uint16_t number;
};

bool fail_line(Where where, const char* what, std::string_view seen, const char* allowed,
               Loaded& out) {
  LineWriter(out.error)
      .text("cistern: error: ")
      .text(where.path)
      .text(":")
      .number(where.number)
      .text(": ")
      .text(what)
      .text("; value seen ")
      .quoted(seen)
      .text("; allowed: ")
      .text(allowed);
  return false;
}

void warn_if_strange(Where where, std::string_view name, Loaded& out) {
  // Flag files are shared with the programs these flags come from.
  if (begins(name, "FLAGS_") || begins(name, "GE_")) return;
  Line place;
  LineWriter(place).text(where.path).text(":").number(where.number).text(": ");
  warn_unknown(place.text, name, out);
}

bool collect_value(Where where, std::string_view name, std::string_view value, Loaded& out) {
  Given* slot = nullptr;
  if (!find_slot(name, out, slot)) return false;
  if (slot == nullptr) return warn_if_strange(where, name, out), true;
  if (name == "CISTERN_CONFIG") {
    return fail_line(where, "a settings file cannot name another", value,
                     "CISTERN_CONFIG in the environment; example: delete this line", out);
  }
  if (slot->text == nullptr) {
    // Behind the value there is a line end, a blank or the end of the text: room for the NUL.
    const_cast<char*>(value.data())[value.size()] = '\0';
    *slot = {value.data(), where.number, Origin::kFile};
  } else if (slot->origin == Origin::kFile) {
    return fail_line(where, "a setting is given twice in this file", name,
                     "each setting once; example: delete one of the lines", out);
  }
  return true;
}

struct Assignment {
  std::string_view name;
  std::string_view value;
};

// False when the line, in which something stands, is not a setting.
bool split(std::string_view line, Assignment& out) {
  if (begins(line, "--")) line.remove_prefix(2);
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || line.find('\0') != std::string_view::npos) return false;
  out = {trim(part(line, 0, equals)), trim(part(line, equals + 1, line.size()))};
  return is_name(out.name);
}

bool collect_line(Where where, std::string_view line, Loaded& out) {
  const std::string_view seen = trim(without_comment(line));
  if (seen.empty()) return true;
  Assignment found;
  if (!split(seen, found)) {
    return fail_line(where, "this line is not a setting", seen,
                     "NAME=value, --FLAGS_name=value or # comment; example: CISTERN_REPORT=text",
                     out);
  }
  return collect_value(where, found.name, found.value, out);
}

// What is left to read after a bad line: what to do about bad values is the user's choice, wherever
// it stands.
void collect_on_error(Where where, std::string_view line, Loaded& out) {
  constexpr std::string_view kName = "CISTERN_ON_ERROR";
  Assignment found;
  if (!split(trim(without_comment(line)), found) || found.name != kName) return;
  if (given_for(out, kName.data()).text == nullptr) {
    collect_value(where, found.name, found.value, out);
  }
}

}  // namespace

bool collect_file(const char* path, Loaded& out) {
  std::string_view rest;
  if (!read_file(path, out, rest)) return false;
  bool good = true;
  for (Where where{path, 1}; !rest.empty(); ++where.number) {
    const std::string_view line = next_item(rest, '\n');
    if (good) {
      good = collect_line(where, line, out);
    } else {
      collect_on_error(where, line, out);
    }
  }
  return good;
}

}  // namespace cistern::config
