// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/protocol.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {

// --- tokens ---

namespace {

constexpr uint64_t kTokenMagic = 0x9d3c61e8f05ab247;

// FNV-1a of everything but the sum itself.
uint32_t checksum_of(IpcToken token) {
  token.checksum = 0;
  unsigned char bytes[sizeof token];
  memcpy(bytes, &token, sizeof token);
  uint32_t sum = 0x811c9dc5;
  for (const unsigned char byte : bytes) sum = (sum ^ byte) * 0x01000193;
  return sum;
}

// SipHash-2-4 (Aumasson and Bernstein) of two words, with the secret and the name as its key.
struct Sip {
  uint64_t v0, v1, v2, v3;

  explicit Sip(const IpcProcess& key)
      : v0(key.secret ^ 0x736f6d6570736575),
        v1(key.name ^ 0x646f72616e646f6d),
        v2(key.secret ^ 0x6c7967656e657261),
        v3(key.name ^ 0x7465646279746573) {}

  void rounds(int count) {
    for (; count > 0; --count) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  }
  void take(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  uint64_t of(uint64_t first, uint64_t second) {
    constexpr uint64_t kEnd = uint64_t{16} << 56;  // the length
    take(first);
    take(second);
    take(kEnd);
    v2 ^= 0xff;
    rounds(4);
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

enum Shown : uint64_t { kPass = 1, kProof = 2, kWord = 3 };

}  // namespace

uint64_t pass_of(const IpcProcess& process) { return Sip(process).of(kPass, 0); }

uint64_t proof_of(const IpcProcess& process, uint64_t number) {
  return Sip(process).of(kProof, number);
}

uint64_t word_of(const IpcProcess& process, uint64_t number) {
  return Sip(process).of(kWord, number);
}

IpcToken showing(const IpcToken& token, uint64_t shown) {
  IpcToken out = token;
  out.process.secret = shown;
  out.checksum = checksum_of(out);
  return out;
}

CUipcMemHandle make_token(const IpcProcess& process, uint64_t address, uint64_t bytes,
                          uint64_t chunk) {
  IpcToken token{kTokenMagic, kIpcVersion, 0, process, address, bytes, chunk};
  token.checksum = checksum_of(token);
  CUipcMemHandle handle;
  memcpy(&handle, &token, sizeof handle);
  return handle;
}

bool read_token(const CUipcMemHandle& handle, IpcToken* out) {
  memcpy(out, &handle, sizeof *out);
  return out->magic == kTokenMagic && out->checksum == checksum_of(*out);
}

bool describe_ipc_process(IpcProcess* out) {
  const NoCancel random_is_read;
  out->number = getpid();
  out->network = network_namespace();
  uint64_t random[2];
  if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) return false;
  out->name = random[0];
  out->secret = random[1];
  return true;
}

uint32_t network_namespace() {
  struct stat name;
  return stat("/proc/self/ns/net", &name) == 0 ? static_cast<uint32_t>(name.st_ino) : 0;
}

// --- messages ---

namespace {

constexpr uid_t kUsualOverflowId = 65534;
constexpr uid_t kNone = static_cast<uid_t>(-1);  // is no user's id

// The overflow id: several users may have it here.
constinit std::atomic<uid_t> shared_id{kUsualOverflowId};

// Whether one line of uid_map maps all ids. Its fields: first id here, first id outside, count.
bool all_are_mapped() {
  constexpr uint64_t kAllIds = UINT32_MAX;
  char text[64];
  alloc::os::read_file("/proc/self/uid_map", text, sizeof text);
  const char* at = text;
  const uint64_t first = alloc::os::read_number(&at);
  alloc::os::read_number(&at);
  return first == 0 && alloc::os::read_number(&at) == kAllIds;
}

uid_t overflow_id() {
  char text[32];
  const char* file = "/proc/sys/kernel/overflowuid";
  if (alloc::os::read_file(file, text, sizeof text) == 0) return kUsualOverflowId;
  const char* at = text;
  return static_cast<uid_t>(alloc::os::read_number(&at));
}

}  // namespace

void look_at_users() {
  const NoCancel reads;
  const int saved = errno;
  shared_id.store(all_are_mapped() ? kNone : overflow_id());
  errno = saved;
}

bool is_own_user(uid_t user) { return user == getuid() && user != shared_id.load(); }

socklen_t ipc_address(const IpcProcess& process, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  // A name that begins with a zero byte is abstract.
  const int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "cistern-ipc-%016llx",
                              static_cast<unsigned long long>(process.name));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

int out_of_the_way(int file) {
  constexpr int kOutOfTheWay = 100;
  const int high = fcntl(file, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (high < 0) return file;
  close(file);
  return high;
}

namespace {

constexpr size_t kShownAt =
    offsetof(IpcRequest, token) + offsetof(IpcToken, process) + offsetof(IpcProcess, secret);

}  // namespace

IpcFilter requests_to(const IpcProcess& process) {
  return {sizeof(IpcRequest), kShownAt, pass_of(process)};
}

IpcFilter words_to(const IpcProcess& process, uint64_t number) {
  return {sizeof(IpcRequest), kShownAt, word_of(process, number)};
}

IpcFilter answers_of(const IpcProcess& process, uint64_t number) {
  return {sizeof(IpcAnswer), offsetof(IpcAnswer, proof), proof_of(process, number)};
}

namespace {

// Both halves are compared before the one jump on their result, so that the time to refuse a
// message reveals neither. BPF loads in network order.
bool attach(int socket, const IpcFilter& filter) {
  uint32_t half[2];
  memcpy(half, &filter.word, sizeof half);
  const auto bytes = static_cast<uint32_t>(filter.bytes), at = static_cast<uint32_t>(filter.at);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bytes, 0, 8),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
      BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, ntohl(half[0])),
      BPF_STMT(BPF_ST, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at + 4),
      BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, ntohl(half[1])),
      BPF_STMT(BPF_LDX | BPF_W | BPF_MEM, 0),
      BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
  };
  const sock_fprog program{sizeof code / sizeof *code, code};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

// Older headers lack the option. A kernel that does not know it returns an error; the filter
// remains.
void refuse_descriptors(int socket) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS of asm-generic/socket.h
  const int off = 0;
  setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof off);
}

bool tells_users(int socket) {
  const int on = 1;
  return setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0;
}

bool bind_to(int socket, const sockaddr_un& address, socklen_t bytes) {
  return bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

bool bind_to_any(int socket) {
  const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = {}};
  return bind_to(socket, any, sizeof any.sun_family);
}

}  // namespace

void close_what_children_get() {
  watch_forks([] {
    InHand<IpcFiles>::close_all_in_child();
    InHand<OwnSocket>::close_all_in_child();
  });
}

bool OwnSocket::create(const IpcFilter& filter) {
  look_at_users();
  {
    const NoForkNow numbered;
    const int low = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (low < 0) return false;
    number_ = out_of_the_way(low);
    struct stat file;
    if (fstat(number_, &file) != 0) return false;
    device_ = file.st_dev;
    inode_ = file.st_ino;
  }
  return attach(number_, filter);
}

bool OwnSocket::opened(bool well) {
  if (well) return true;
  const int saved = errno;
  close_own();
  errno = saved;
  return false;
}

bool OwnSocket::open_for(const IpcProcess& process) {
  sockaddr_un address;
  const socklen_t bytes = ipc_address(process, &address);
  if (!create(requests_to(process))) return opened(false);
  refuse_descriptors(number_);
  return opened(tells_users(number_) && bind_to(number_, address, bytes));
}

bool OwnSocket::open_to_ask(const IpcProcess& process, uint64_t number) {
  return opened(create(answers_of(process, number)) && tells_users(number_) &&
                bind_to_any(number_));
}

// Connects before it sets SO_PASSCRED: with that option the kernel would bind the socket in
// connect().
bool OwnSocket::open_line(const IpcProcess& process, uint64_t number, const IpcSender& to) {
  if (!create(words_to(process, number))) return opened(false);
  refuse_descriptors(number_);
  return opened(connect_to(to) && tells_users(number_) && bind_to_any(number_));
}

bool OwnSocket::connect_to(const IpcSender& to) const {
  return still_ours() &&
         connect(number_, reinterpret_cast<const sockaddr*>(&to.address), to.address_bytes) == 0;
}

void OwnSocket::disconnect() const {
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (still_ours()) static_cast<void>(connect(number_, &nobody, sizeof nobody.sa_family));
}

bool OwnSocket::still_ours() const {
  struct stat file;
  if (number_ >= 0 && fstat(number_, &file) == 0 && file.st_dev == device_ &&
      file.st_ino == inode_) {
    return true;
  }
  errno = EBADF;
  return false;
}

void OwnSocket::close_own() {
  if (number_ < 0) return;
  const NoForkNow closed;
  close_in_child();
}

void OwnSocket::close_in_child() {
  if (still_ours()) close(number_);
  number_ = -1;
}

namespace {

// Reads the sender's user id, and the descriptors that came along.
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
    if (part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      files->add(number);
    }
  }
  return known;
}

// Closing a socket that lingers blocks until its peer has read everything, or for the time that was
// set.
void close_without_a_wait(int number) {
  const linger none{0, 0};
  setsockopt(number, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  close(number);
}

}  // namespace

void IpcFiles::close_all() {
  const int saved = errno;
  while (count_ != 0) {
    const NoForkNow closed;
    close_without_a_wait(numbers_[--count_]);
  }
  errno = saved;
}

void IpcFiles::close_in_child() {
  while (count_ != 0) close(numbers_[--count_]);
}

void IpcFiles::take_all(IpcFiles* others) {
  close_all();
  const NoForkNow taken;
  for (uint32_t i = 0; i < others->count_; ++i) add(others->numbers_[i]);
  others->count_ = 0;
}

ssize_t OwnSocket::receive(void* message, size_t size, IpcSender* from) const {
  IpcFiles dropped;
  bool cut;
  return receive_with_files(message, size, from, &dropped, &cut);
}

// If there is no room for a descriptor, the kernel closes it, with the wait of an ordinary close.
ssize_t OwnSocket::receive_with_files(void* message, size_t size, IpcSender* from, IpcFiles* files,
                                      bool* cut) const {
  alignas(cmsghdr) unsigned char
      control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kMostOfKernel * sizeof(int))];
  iovec part{message, size};
  msghdr head{};
  head.msg_name = &from->address;
  head.msg_namelen = sizeof from->address;
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  files->close_all();
  const NoForkNow received_and_known;
  if (!still_ours()) return -1;
  const ssize_t received = recvmsg(number_, &head, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (received < 0) return -1;
  from->address_bytes = head.msg_namelen;
  const bool known = read_control(&head, &from->user, files);
  *cut = files->count() > kMostFiles || (head.msg_flags & MSG_CTRUNC) != 0;
  return known ? received : 0;
}

bool OwnSocket::send_to(const sockaddr_un& to, socklen_t to_bytes, const void* message,
                        size_t size) const {
  return still_ours() && sendto(number_, message, size, MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), to_bytes) >= 0;
}

bool OwnSocket::send_connected(const void* message, size_t size, const IpcFiles& files) const {
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(kMostFiles * sizeof(int))] = {};
  iovec part{const_cast<void*>(message), size};
  msghdr head{};
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
  return still_ours() && sendmsg(number_, &head, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace cistern::shim
