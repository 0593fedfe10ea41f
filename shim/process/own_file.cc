// SPDX-License-Identifier: Apache-2.0
#include "shim/process/own_file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "allocator/base/os.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

// Whether a full pipe accepts more within that time. Keeps errno. A handler of the program may
// interrupt the wait many times.
bool takes_more(int fd, int patience_ms) {
  const int saved = errno;
  const uint64_t end = alloc::os::now_ns() + static_cast<uint64_t>(patience_ms) * 1'000'000;
  int ready = 0;
  for (uint64_t now = 0; patience_ms != 0 && (now = alloc::os::now_ns()) < end;) {
    pollfd pipe{fd, POLLOUT, 0};
    ready = poll(&pipe, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    if (ready >= 0 || errno != EINTR) break;
  }
  errno = saved;
  return ready > 0;
}

}  // namespace

// A pipe without a reader raises SIGPIPE; a file beyond the process's limit raises SIGXFSZ. The
// program must not get these signals for a line of Cistern's, so they are blocked, and removed if
// raised.
bool write_quietly(int fd, const char* text, size_t bytes, off_t at, int patience_ms) {
  const NoCancel write_ends;
  sigset_t raised, before, pending;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &raised, &before);
  ssize_t written = 0;
  size_t left = bytes;
  while (left > 0) {
    const size_t done = bytes - left;
    written = at == kWhereItStands ? ::write(fd, text + done, left)
                                   : ::pwrite(fd, text + done, left, at + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;  // a handler of the program ran
    if (written < 0 && errno == EAGAIN && takes_more(fd, patience_ms)) continue;
    if (written <= 0) break;
    left -= static_cast<size_t>(written);
  }
  const int saved = errno;
  const int signal = saved == EPIPE ? SIGPIPE : SIGXFSZ;
  if (written < 0 && (saved == EPIPE || saved == EFBIG) && sigismember(&pending, signal) == 0) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal);
    const timespec now{};
    sigtimedwait(&own, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = saved;
  return left == 0;
}

namespace {

constinit char start_directory_[PATH_MAX] = "";  // for relative file names

const char* rank() {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"}) {
    if (const char* value = getenv(name); value != nullptr && *value != '\0') return value;
  }
  return "0";
}

// O_NONBLOCK: a pipe that nobody reads must not block the program. O_NOCTTY: a terminal must not
// become the process's controlling terminal.
constexpr int kOpenFlags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

int flags_for(Existing existing) {
  return kOpenFlags | (existing == Existing::append ? O_APPEND : 0);
}

int refuse(int fd, int error) {
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

int open_as_named(const char* path, Existing existing) {
  const int fd = open(path, flags_for(existing));
  struct stat file;
  if (fd < 0) return -1;
  if (fstat(fd, &file) != 0 || S_ISBLK(file.st_mode)) return refuse(fd, EPERM);
  if (!S_ISREG(file.st_mode)) return fd;
  if (existing == Existing::keep) return refuse(fd, EEXIST);
  // Cistern appends, so what the program has written there stays.
  if (fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND) != 0) return refuse(fd, errno);
  return fd;
}

// --- names in folders ---

bool fail(int error) {
  errno = error;
  return false;
}

// The path to a file, walked one name at a time; a link is replaced by its target. It works in the
// caller's text, since the thread's stack may be small.
class Way {
 public:
  explicit Way(char (&path)[PATH_MAX]) : rest_(path) {}
  ~Way() {
    if (folder_ >= 0) close(folder_);
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  // Walks to the folder of the last name. On failure returns false and sets errno.
  bool walk() {
    if (!go_to("/")) return false;
    while (true) {
      drop(strspn(rest_, "/"));
      char* slash = strchr(rest_, '/');
      if (slash == nullptr) return true;
      *slash = '\0';
      if (!step(slash + 1)) return false;
    }
  }
  int folder() const { return folder_; }
  const char* name() const { return rest_; }

 private:
  static constexpr int kMostLinks = 40;  // as in the kernel

  void drop(size_t bytes) { memmove(rest_, rest_ + bytes, strlen(rest_ + bytes) + 1); }

  // Opens `name` in the current folder; does not follow links.
  bool go_to(const char* name) {
    const int next = openat(folder_, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) return false;
    if (folder_ >= 0) close(folder_);
    folder_ = next;
    return true;
  }

  // Steps over the first name of rest_, which ends with a null byte; `later` is the text after it.
  bool step(const char* later) {
    struct stat there;
    if (fstatat(folder_, rest_, &there, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (S_ISLNK(there.st_mode)) return follow(later);
    if (!go_to(rest_) || fstat(folder_, &there) != 0) return false;
    if (!S_ISDIR(there.st_mode)) return fail(ENOTDIR);  // also if a link has replaced it meanwhile
    drop(static_cast<size_t>(later - rest_));
    return true;
  }

  // Opens the link itself, so that the checked owner is the owner of the text that is read.
  [[gnu::noinline]] bool follow(const char* later) {
    char whole[PATH_MAX];
    struct stat there;
    const int link = openat(folder_, rest_, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0) return false;
    const bool known = fstat(link, &there) == 0;
    const ssize_t length = readlinkat(link, "", whole, sizeof whole - 1);
    close(link);
    if (!known || length < 0) return false;
    if (there.st_uid != 0 && there.st_uid != geteuid()) return fail(EPERM);
    if (++links_ > kMostLinks) return fail(ELOOP);
    const auto bytes = static_cast<size_t>(length);
    const size_t room = sizeof whole - bytes;
    if (static_cast<size_t>(snprintf(whole + bytes, room, "/%s", later)) >= room) {
      return fail(ENAMETOOLONG);
    }
    if (whole[0] == '/' && !go_to("/")) return false;
    memcpy(rest_, whole, strlen(whole) + 1);
    return true;
  }

  int folder_ = -1;
  int links_ = 0;
  char* rest_;
};

// A second name may mean that another user has linked a file of this user here.
bool ours_alone(const struct stat& file) {
  return S_ISREG(file.st_mode) && file.st_uid == geteuid() && file.st_nlink == 1;
}

// Checks the file before opening it, because opening a device may have an effect. Checks it again
// afterwards, because it may have been replaced.
int open_there(int folder, const char* name, Existing existing) {
  struct stat file;
  if (fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) != 0) return -1;
  if (S_ISDIR(file.st_mode)) return refuse(-1, EISDIR);
  if (existing == Existing::keep) return refuse(-1, EEXIST);
  if (!ours_alone(file)) return refuse(-1, EPERM);
  const int fd = openat(folder, name, flags_for(existing) | O_NOFOLLOW);
  if (fd < 0) return -1;
  if (fstat(fd, &file) != 0 || !ours_alone(file)) return refuse(fd, EPERM);
  if (existing == Existing::truncate && ftruncate(fd, 0) != 0) return refuse(fd, errno);
  return fd;
}

int open_in_folders(char (&path)[PATH_MAX], Existing existing) {
  constexpr mode_t kForItsUser = 0600;
  Way way(path);
  if (!way.walk()) return -1;
  if (*way.name() == '\0') return refuse(-1, EISDIR);
  const int fd = openat(way.folder(), way.name(),
                        flags_for(existing) | O_CREAT | O_EXCL | O_NOFOLLOW, kForItsUser);
  if (fd >= 0 || errno != EEXIST) return fd;
  return open_there(way.folder(), way.name(), existing);
}

}  // namespace

bool OwnFile::adopt(int fd) {
  struct stat file;
  constexpr int kOutOfTheWay = 100;  // programs expect the low numbers for files of their own
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (moved < 0) moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);  // a low limit of files
  if (moved < 0 || fstat(moved, &file) != 0) return false;
  const int before = still_ours() ? descriptor_.load(std::memory_order_relaxed) : -1;
  device_ = file.st_dev;
  inode_ = file.st_ino;
  descriptor_.store(moved, std::memory_order_release);
  if (before >= 0) close(before);
  return true;
}

bool OwnFile::open(const char* pattern, Existing existing) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", is_relative(pattern) ? start_directory_ : "");
  const size_t directory = strlen(path);
  expand_path(pattern, path + directory, sizeof path - directory);
  int fd = -1;
  if (strlen(path) == sizeof path - 1) {
    errno = ENAMETOOLONG;  // the path was cut off
  } else if (alloc::nobody_else_made(path)) {
    fd = open_as_named(path, existing);
  } else {
    fd = open_in_folders(path, existing);
  }
  if (fd < 0) return false;
  const bool kept = adopt(fd);
  const int saved = errno;
  close(fd);
  errno = saved;
  return kept;
}

void OwnFile::close_own() {
  if (still_ours()) close(descriptor_.exchange(-1));
}

// The program may have closed our descriptor and opened a file of its own under the same number.
bool OwnFile::still_ours() const {
  struct stat file;
  const int fd = descriptor_.load(std::memory_order_acquire);
  return fd >= 0 && fstat(fd, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

bool OwnFile::write(const char* text, size_t bytes, off_t at, int patience_ms) const {
  if (still_ours()) {
    return write_quietly(descriptor_.load(std::memory_order_relaxed), text, bytes, at, patience_ms);
  }
  errno = EBADF;
  return false;
}

void note_start_directory() {
  const bool known = getcwd(start_directory_, sizeof start_directory_ - 1) != nullptr;
  start_directory_[known ? strlen(start_directory_) : 0] = known ? '/' : '\0';
}

void path_from_start(const char* name, char* out) {
  snprintf(out, PATH_MAX, "%s%s", is_relative(name) ? start_directory_ : "", name);
}

const char* open_error(int error) {
  return error == EPERM ? "Operation not permitted (through links of others, to devices, named "
                          "pipes and files of other users nothing is written)"
                        : strerrordesc_np(error);
}

void expand_path(const char* pattern, char* out, unsigned long size) {
  char* end = out + size - 1;
  const auto append = [&](const char* text) {
    while (*text != '\0' && out < end) *out++ = *text++;
  };
  for (; *pattern != '\0' && out < end; ++pattern) {
    const char kind = *pattern == '%' ? pattern[1] : '\0';
    char text[256] = "";
    if (kind == 'p') snprintf(text, sizeof text, "%d", static_cast<int>(getpid()));
    if (kind == 'h') gethostname(text, sizeof text - 1);
    if (kind == 'r') snprintf(text, sizeof text, "%s", rank());
    if (kind == '%') snprintf(text, sizeof text, "%%");
    if (strchr("phr%", kind) == nullptr || kind == '\0') {
      *out++ = *pattern;
      continue;
    }
    append(text);
    ++pattern;
  }
  *out = '\0';
}

}  // namespace cistern::shim
