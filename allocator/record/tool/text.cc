// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/record/program_code.h"
#include "allocator/record/tool/functions.h"
#include "config/text.h"

namespace cistern::alloc::tool {

std::string printable(std::string_view text) {
  std::string out;
  config::for_each_shown(text, "\uFFFD", [&](std::string_view piece) { out += piece; });
  return out;
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string exact_json(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t bytes = config::utf8_character(text);
    const std::string_view piece = text.substr(0, std::max<size_t>(bytes, 1));
    const uint32_t code = bytes == 0 ? 0xDC00U + static_cast<unsigned char>(piece[0])
                                     : config::code_point(piece, bytes);
    if (bytes == 0 || !config::is_shown(code)) {
      append(out, "\\u%04x", code);
    } else {
      if (code == '"' || code == '\\') out += '\\';
      out += piece;
    }
    text.remove_prefix(piece.size());
  }
  return out + '"';
}

std::string mib(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string frame_text(const Recording& recording, const Frame& frame) {
  const std::string& path = recording.names[frame.file];
  if (frame.python()) {
    return printable(recording.names[frame.function] + " (" + path + ":" +
                     std::to_string(frame.line) + ")");
  }
  const auto hex = [](uint64_t number) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
    return std::string(text);
  };
  if (path.empty()) return hex(frame.offset);
  const std::string file = path.substr(path.rfind('/') + 1);
  const Function function = function_at(path, frame.offset);
  if (function.name.empty()) return printable(file + "+" + hex(frame.offset));
  const std::string place = function.place.empty() ? "" : ", " + function.place;
  return printable(function.name + "+" + hex(function.into) + " (" + file + place + ")");
}

std::string site_text(const Recording& recording, uint32_t site) {
  const std::vector<Frame>& frames = recording.sites[site];
  if (frames.empty()) return kUnknown;
  const auto path = [&](const Frame& frame) -> std::string_view {
    return recording.names[frame.file];
  };
  const auto function = [&](const Frame& frame) {
    return function_at(recording.names[frame.file], frame.offset);
  };
  const auto [first, last] = shown_frames(
      frames.data(), static_cast<int>(frames.size()), path,
      [&](const Frame& frame) { return function(frame).wrapper; },
      [&](const Frame& frame) { return function(frame).name.empty(); });
  std::string text;
  for (int i = first; i <= last; ++i) {
    text += (i == first ? "" : " from ") + frame_text(recording, frames[static_cast<size_t>(i)]);
  }
  return text;
}

std::string begin_picture(double width, double height) {
  std::string text;
  append(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\">\n", width, height);
  append(text, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", width, height);
  return text;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const char* written = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : nullptr;
    written == nullptr ? out.push_back(c) : void(out.append(written));
  }
  return out;
}

namespace {

int refuse(int fd, int error) {
  if (fd >= 0) ::close(fd);
  errno = error;
  return -1;
}

// Opening a device may do something, and a pipe without a writer waits for one.
int open_to_read(const std::string& path, size_t* bytes) {
  struct stat file;
  if (::stat(path.c_str(), &file) != 0) return -1;
  if (S_ISDIR(file.st_mode)) return refuse(-1, EISDIR);
  if (!S_ISREG(file.st_mode) && !S_ISFIFO(file.st_mode)) return refuse(-1, EPERM);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::fstat(fd, &file) != 0) return refuse(fd, errno);
  if (!S_ISREG(file.st_mode) && !S_ISFIFO(file.st_mode)) return refuse(fd, EPERM);
  if (static_cast<uint64_t>(file.st_size) > kMostRead) return refuse(fd, EFBIG);
  *bytes = static_cast<size_t>(file.st_size);
  return fd;
}

// Grows by what is there, so a pipe, or a file that grows meanwhile, is bounded as well.
bool read_all(int fd, std::vector<uint8_t>& out) {
  for (uint8_t part[1 << 16];;) {
    const ssize_t got = ::read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0;
    if (out.size() + static_cast<size_t>(got) > kMostRead) return errno = EFBIG, false;
    out.insert(out.end(), part, part + got);
  }
}

bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

bool write_and_close(int fd, const std::string& text) {
  if (fd < 0) return false;
  const bool whole = write_all(fd, text);
  const int error = errno;
  const bool closed = ::close(fd) == 0;
  if (!whole) errno = error;
  return whole && closed;
}

// Whether the name is free, or stands for what a new file may replace.
bool may_be_replaced(const std::string& path) {
  struct stat file;
  if (::lstat(path.c_str(), &file) != 0) return errno == ENOENT;
  if (S_ISREG(file.st_mode) || S_ISLNK(file.st_mode)) return true;
  errno = S_ISDIR(file.st_mode) ? EISDIR : EPERM;
  return false;
}

// Under another name first: whoever reads the old file meanwhile has a whole one. In a folder of
// several users somebody may have put a link there, which would choose the file that is written;
// and a name that can be foreseen is somebody's file already.
bool replace(const std::string& path, const std::string& text) {
  if (!may_be_replaced(path)) return false;
  std::string written = path + ".XXXXXX";
  const int fd = ::mkostemp(written.data(), O_CLOEXEC);  // for this user alone
  if (fd < 0) return false;
  if (write_and_close(fd, text) && ::rename(written.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(written.c_str());
  errno = error;
  return false;
}

bool write_as_it_is(const std::string& path, const std::string& text) {
  return write_and_close(::open(path.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC), text);
}

}  // namespace

bool read_file(const std::string& path, const char* what, std::vector<uint8_t>& out,
               std::string& problem) {
  size_t bytes = 0;
  const int fd = open_to_read(path, &bytes);
  if (fd >= 0) out.reserve(bytes);
  const bool read = fd >= 0 && read_all(fd, out);
  if (!read) {
    problem = std::string(what) +
              " cannot be read: " + (errno == EFBIG ? "more than 8 GiB" : std::strerror(errno)) +
              "; value seen \"" + path + "\"; try: ls -l " + path;
  }
  if (fd >= 0) ::close(fd);
  return read;
}

bool write_file(const std::string& path, const std::string& text, const char* what,
                std::string& problem) {
  if (nobody_else_made(path.c_str()) ? write_as_it_is(path, text) : replace(path, text)) {
    return true;
  }
  problem = std::string(what) + " cannot be written: " + std::string(std::strerror(errno)) +
            "; value seen \"" + path + "\"; try: another file, or df";
  return false;
}

}  // namespace cistern::alloc::tool
