// SPDX-License-Identifier: Apache-2.0
// Gathering texts, from the environment and from the file that CISTERN_CONFIG names. Its lines are
// NAME=value, or --FLAGS_name=value as in a gflags flag file; blanks around names and values do not
// count; # at the start of a line or after a blank begins a comment. The file is read straight into
// the storage of the Loaded and the values are kept where they lie. By system calls, since it may
// be read inside the first malloc, where a wrapper of open() that allocates would wait for itself.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "config/load.h"
#include "config/text.h"

namespace cistern::config {

// The environment in one pass, for which every process under the preload pays: it looks closer only
// at names with our prefixes.

namespace {

constexpr std::string_view kOurs = "CISTERN_";

bool may_be_ours(std::string_view entry) {
  return begins(entry, kOurs) || begins(entry, "FLAGS_") || begins(entry, "GE_");
}

void write_bad_device(std::string_view name, Loaded& out) {
  LineWriter(out.error)
      .text("cistern: error: there is no such device; value seen ")
      .quoted(name)
      .text("; allowed: device numbers from 0 to ")
      .number(kMaxDevices - 1)
      .text("; example: CISTERN_GPU_LIMIT_0=8G");
}

bool collect_entry(std::string_view entry, Loaded& out) {
  const size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return true;  // not a variable; getenv sees none either
  const std::string_view name = part(entry, 0, equals);
  if (name == "CISTERN_LAUNCHER") return true;
  Given* slot = nullptr;
  if (!find_slot(name, out, slot)) return false;
  if (slot == nullptr) {
    if (begins(name, kOurs)) warn_unknown("", name, out);
    return true;
  }
  if (slot->text != nullptr) return true;  // the first of two counts, as for getenv
  const char* text = keep_text(name, part(entry, equals + 1, entry.size()), out);
  if (text == nullptr) return false;
  *slot = {text, 0, Origin::kEnv};
  return true;
}

bool mark_launcher(std::string_view names, Loaded& out) {
  while (!names.empty()) {
    Given* slot = nullptr;
    if (!find_slot(next_item(names, ','), out, slot)) return false;
    if (slot != nullptr && slot->text != nullptr) slot->origin = Origin::kLauncher;
  }
  return true;
}

}  // namespace

bool collect_environment(const char* const* envp, Loaded& out) {
  const char* launcher_names = nullptr;
  for (; *envp != nullptr; ++envp) {
    const std::string_view entry = *envp;
    if (!may_be_ours(entry)) continue;
    if (!collect_entry(entry, out)) return false;
    constexpr std::string_view kEntry = "CISTERN_LAUNCHER=";
    if (begins(entry, kEntry)) launcher_names = *envp + kEntry.size();
  }
  out.launched = launcher_names != nullptr;
  return !out.launched || mark_launcher(launcher_names, out);
}

bool find_slot(std::string_view name, Loaded& out, Given*& slot) {
  unsigned device = kNoDevice;
  const Row* row = find_row(name, device);
  slot = nullptr;
  if (row == nullptr) return true;
  if (row->store != nullptr) {
    slot = &out.given[static_cast<size_t>(row - kTable.data())];
    return true;
  }
  if (device >= kMaxDevices) return write_bad_device(name, out), false;
  slot = &out.given_device[device];
  return true;
}

const char* keep_text(std::string_view name, std::string_view text, Loaded& out) {
  const size_t left = kStorageBytes - out.storage_used;
  if (text.size() > kMaxValueBytes || text.size() >= left) {
    LineWriter(out.error)
        .text("cistern: error: ")
        .text(name)
        .text(" is too long; value seen ")
        .quoted(text, 40)
        .text("; allowed: ")
        .number(kMaxValueBytes)
        .text(" bytes, and ")
        .number(kStorageBytes)
        .text(" for all settings together; example: unset ")
        .text(name);
    return nullptr;
  }
  char* kept = out.storage + out.storage_used;
  std::memcpy(kept, text.data(), text.size());
  kept[text.size()] = '\0';
  out.storage_used += text.size() + 1;
  return kept;
}

void warn_unknown(const char* where, std::string_view name, Loaded& out) {
  LineWriter line(next_warning(out));
  line.text("cistern: warn: ").text(where).text("unknown setting; ").quoted(name);
  const char* nearest = begins(name, kOurs) ? nearest_name(name) : nullptr;
  if (nearest != nullptr) {
    line.text("; did you mean ").text(nearest).text("?");
  } else {
    line.text("; see cistern flags");
  }
}

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
