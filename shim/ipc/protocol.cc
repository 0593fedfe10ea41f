// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/protocol.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace cistern::shim {

socklen_t ipc_address(const IpcProcess& process, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  // A name that begins with a zero byte is abstract.
  const int length =
      snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "cistern-ipc-%016llx%016llx",
               static_cast<unsigned long long>(process.key[0]),
               static_cast<unsigned long long>(process.key[1]));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

int out_of_the_way(int file) {
  constexpr int kOutOfTheWay = 100;
  const int high = fcntl(file, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (high < 0) return file;
  close(file);
  return high;
}

bool OwnSocket::open(const sockaddr_un* address, socklen_t bytes) {
  const int low = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (low < 0) return false;
  number_ = out_of_the_way(low);
  const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = {}};
  const int on = 1;
  struct stat file;
  if (setsockopt(number_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
      bind(number_, reinterpret_cast<const sockaddr*>(address != nullptr ? address : &any),
           address != nullptr ? bytes : sizeof any.sun_family) == 0 &&
      fstat(number_, &file) == 0) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
    return true;
  }
  const int saved = errno;
  close(number_);
  number_ = -1;
  errno = saved;
  return false;
}

bool OwnSocket::still_ours() const {
  struct stat file;
  return number_ >= 0 && fstat(number_, &file) == 0 && file.st_dev == device_ &&
         file.st_ino == inode_;
}

void OwnSocket::close_own() {
  if (still_ours()) close(number_);
  number_ = -1;
}

namespace {

// The kernel puts the credentials first, and all descriptors into one message after them.
bool read_control(msghdr* head, uid_t* user, IpcFiles* files) {
  bool known = false;
  for (cmsghdr* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len >= CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      memcpy(&sender, CMSG_DATA(part), sizeof sender);
      *user = sender.uid;
      known = true;
    }
    if (part->cmsg_type != SCM_RIGHTS || files == nullptr) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      files->count() < kMostFiles ? files->add(number) : static_cast<void>(close(number));
    }
  }
  return known;
}

}  // namespace

void IpcFiles::close_all() {
  // A child that is forked meanwhile closes no number that is another file by then.
  while (count_ != 0) close(numbers_[--count_]);
}

void IpcFiles::take_all(IpcFiles* others) {
  close_all();
  for (uint32_t i = 0; i < others->count_; ++i) add(others->numbers_[i]);
  others->count_ = 0;
}

ssize_t OwnSocket::receive_into(msghdr* head, uid_t* user, IpcFiles* files) const {
  const ssize_t received = recvmsg(number_, head, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (received < 0) return -1;
  return read_control(head, user, files) ? received : 0;
}

// There is room for the credentials alone, so that the kernel drops descriptors that a peer sends
// along.
ssize_t OwnSocket::receive(void* message, size_t size, uid_t* user, sockaddr_un* from,
                           socklen_t* from_bytes) const {
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(ucred))] = {};
  iovec part{message, size};
  msghdr head{};
  head.msg_name = from;
  head.msg_namelen = from != nullptr ? sizeof *from : 0;
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  const ssize_t received = receive_into(&head, user, nullptr);
  if (received >= 0 && from_bytes != nullptr) *from_bytes = head.msg_namelen;
  return received;
}

ssize_t OwnSocket::receive_with_files(void* message, size_t size, uid_t* user, IpcFiles* files,
                                      bool* cut) const {
  alignas(cmsghdr) unsigned char
      control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  iovec part{message, size};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  files->close_all();
  const ssize_t received = receive_into(&head, user, files);
  *cut = received >= 0 && (head.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

bool OwnSocket::send_to(const sockaddr_un& to, socklen_t to_bytes, const void* message, size_t size,
                        const IpcFiles& files) const {
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  sockaddr_un address = to;
  iovec part{const_cast<void*>(message), size};
  msghdr head{};
  head.msg_name = &address;
  head.msg_namelen = to_bytes;
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (const size_t bytes = files.count() * sizeof(int); bytes != 0) {
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(rights), files.numbers(), bytes);
  }
  return sendmsg(number_, &head, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace cistern::shim
