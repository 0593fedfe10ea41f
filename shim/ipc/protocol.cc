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

bool OwnSocket::open(const sockaddr_un* address, socklen_t bytes) {
  constexpr int kOutOfTheWay = 100;
  const int low = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (low < 0) return false;
  const int high = fcntl(low, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (high >= 0) close(low);
  number_ = high >= 0 ? high : low;
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
  const ssize_t received = recvmsg(number_, &head, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (received < 0) return -1;
  if (from_bytes != nullptr) *from_bytes = head.msg_namelen;
  const cmsghdr* first = CMSG_FIRSTHDR(&head);
  if (first == nullptr || first->cmsg_level != SOL_SOCKET || first->cmsg_type != SCM_CREDENTIALS ||
      first->cmsg_len < CMSG_LEN(sizeof(ucred))) {
    return 0;
  }
  ucred sender;
  memcpy(&sender, CMSG_DATA(first), sizeof sender);
  *user = sender.uid;
  return received;
}

}  // namespace cistern::shim
