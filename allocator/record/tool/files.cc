// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc::tool {
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
