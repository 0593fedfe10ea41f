// SPDX-License-Identifier: Apache-2.0
// The messages between a process that opens a token and the one that made it: datagrams over
// sockets in the abstract namespace, which go with their process. They arrive whole or not at all,
// so no peer can delay the other with half a message. The kernel adds the sender's user
// (SCM_CREDENTIALS). Only the fields below are read, and only if size, magic and version are right.
//
// When an answer is sent, another process may have the address. So nothing of a block is sent to an
// address:
//   importer → the exporter's name       a request, which shows the pass
//   exporter → the importer's address    `come`, from a socket for this importer alone, its line,
//                                        which is connected to whatever socket is there now
//   importer, connected to the line →    the request again, which shows the word
//   exporter → the line                  the answer, with descriptors where the block is in units
// A line sends to, and hears, only the one socket that it is connected to, even if another process
// takes the address. A peer that showed the word there has the token (service.h).
//
// Strangers know the socket's name. Their messages must not even arrive: each wakes the receiver,
// and the receiver must close descriptors that come along, which may take as long as the sender
// likes (SO_LINGER). So each socket has a filter that the kernel applies in the sender's call. A
// process that has a token passes the filter, also as another user. Before Linux 6.16 the kernel
// cannot refuse its descriptors: they are received, and closed without a wait.
//
// A thread has descriptors in hand for a moment while another thread forks. The child inherits the
// descriptors and the thread's record of them, and closes them. For that, opening and recording a
// descriptor, or closing and forgetting it, must lie together before or after the fork. So each
// waits for the other, but at most kMostNs: a signal handler may call fork in the middle of what it
// waits for. Any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/ipc/token.h"

namespace cistern::shim {

// From the first call on, forks wait, and each child calls this.
void watch_forks(void (*close)());

// For a scope no fork begins. Not within another one. No wait in it: a few calls of the kernel.
class NoForkNow {
 public:
  NoForkNow();
  ~NoForkNow();
  NoForkNow(const NoForkNow&) = delete;
  NoForkNow& operator=(const NoForkNow&) = delete;

  static constexpr uint64_t kMostNs = 100'000'000;
};

// For a scope the object is one that a child closes: T::close_in_child(). Of more than kMost at a
// time children know not all.
template <typename T>
class InHand {
 public:
  explicit InHand(T* object) {
    for (std::atomic<T*>& place : places) {
      T* none = nullptr;
      if (!place.compare_exchange_strong(none, object)) continue;
      place_ = &place;
      return;
    }
  }
  ~InHand() {
    if (place_ != nullptr) place_->store(nullptr);
  }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

  static void close_all_in_child() {
    for (std::atomic<T*>& place : places) {
      if (T* object = place.exchange(nullptr); object != nullptr) object->close_in_child();
    }
  }

 private:
  static constexpr size_t kMost = 256;
  static inline constinit std::atomic<T*> places[kMost]{};
  std::atomic<T*>* place_ = nullptr;
};

// Whether a peer is of this process's user. Equal ids are not enough in a user namespace: all users
// that it does not map have one id there, the overflow id (usually 65534, of `nobody`), and a
// process that has this id itself is none of them. If all ids are mapped, as outside of namespaces,
// that id is a user like any other.

// Reads what the kernel says of users, before is_own_user() is asked. Any thread; no cancellation
// point. A process changes its user namespace only while it has one thread.
void look_at_users();

// `user` as the kernel says it of a peer (SCM_CREDENTIALS). Any thread.
bool is_own_user(uid_t user);

inline constexpr uint64_t kRequestMagic = 0x51c9a1d07be33f5e;
inline constexpr uint64_t kAnswerMagic = 0x6be2f8041c97d3aa;

struct IpcRequest {
  uint64_t magic;
  uint32_t version;
  uint32_t first;   // of the units that the block lies in, the first whose descriptor is wanted
  uint64_t number;  // drawn by the importer; the answer has its proof
  IpcToken token;   // with the pass or the word instead of its secret
};

enum class IpcStatus : uint32_t {
  given,
  gone,     // the block was freed, or never was
  refused,  // another user asks
  version,  // the exporter speaks another version: the answer's
  unable,   // the units' descriptors cannot be had
  come,     // to the socket that this is from, and ask there
};

struct IpcAnswer {
  uint64_t magic;
  uint32_t version;
  IpcStatus status;
  uint64_t proof;  // of the request's number
  // Where `given`: the driver's handle of the chunk, and the block in it.
  CUipcMemHandle handle;
  uint64_t offset;
  uint64_t bytes;
  // Where the block lies in units: then there is no handle, `offset` is that in the first of them,
  // and descriptors came along of as many from IpcRequest::first on as one message takes.
  uint64_t unit_bytes;  // 0: in a chunk
  uint64_t units;
};

// How many descriptors come with one message, and how many the kernel takes.
inline constexpr uint32_t kMostFiles = 64;
inline constexpr uint32_t kMostOfKernel = 253;

// The same file under a high number, as programs expect the low ones for files of their own, and
// closed where another program begins; as it is where none is free.
int out_of_the_way(int file);

// Descriptors in one thread's hands: what is there at the end is closed, and in a child that is
// forked meanwhile.
class IpcFiles {
 public:
  IpcFiles() : known_(this) {}
  ~IpcFiles() { close_all(); }
  IpcFiles(const IpcFiles&) = delete;
  IpcFiles& operator=(const IpcFiles&) = delete;

  uint32_t count() const { return count_; }
  int number(uint32_t i) const { return numbers_[i]; }
  const int* numbers() const { return numbers_; }
  // There are fewer than kMostOfKernel.
  void add(int number) { numbers_[count_++] = number; }
  // Whoever sent them, and whatever they are to do when they are closed: none waits for its unsent
  // data. errno stays.
  void close_all();
  void take_all(IpcFiles* others);
  void close_in_child();

 private:
  int numbers_[kMostOfKernel];
  uint32_t count_ = 0;
  const InHand<IpcFiles> known_;
};

// From the first call on, a child closes what was in hand when it was forked.
void close_what_children_get();

// The address of the socket of a process; its length.
socklen_t ipc_address(const IpcProcess& process, sockaddr_un* out);

// What a filter lets in: messages of this size with this word at this place.
struct IpcFilter {
  size_t bytes, at;
  uint64_t word;
};
IpcFilter requests_to(const IpcProcess& process);
IpcFilter words_to(const IpcProcess& process, uint64_t number);
IpcFilter answers_of(const IpcProcess& process, uint64_t number);

// Where a message is from.
struct IpcSender {
  uid_t user = 0;
  sockaddr_un address{};
  socklen_t address_bytes = 0;

  // An abstract one. A path is never one of Cistern's, and may lie where to look it up takes as
  // long as somebody likes.
  bool has_address() const {
    return address_bytes > sizeof address.sun_family && address.sun_path[0] == '\0';
  }
};

// A socket of Cistern's, under a high number; used no more once the program has made that number
// another file: then what needs it fails, with EBADF. Any thread may call still_ours(); for the
// rest, one thread at a time.
class OwnSocket {
 public:
  // Bound to the name of this process. No descriptor comes in where the kernel can refuse them all
  // (SO_PASSRIGHTS, Linux 6.16). False, with errno: EADDRINUSE, if somebody has the name.
  bool open_for(const IpcProcess& process);
  // An importer's, bound to a name that the kernel chooses. False, with errno.
  bool open_to_ask(const IpcProcess& process, uint64_t number);
  // A line to whatever socket has that address now: bound as well, once it is connected, so that
  // nobody else can send to it at any time. It takes no descriptor, as open_for(). False, with
  // errno.
  bool open_line(const IpcProcess& process, uint64_t number, const IpcSender& to);
  // From now on it hears and reaches that socket alone, and no longer what it was connected to.
  bool connect_to(const IpcSender& to) const;
  void disconnect() const;
  bool still_ours() const;
  void close_own();
  void close_in_child() { close_own(); }
  int number() const { return number_; }

  // A message that is there and who sent it; the size, or -1 without one. What is longer than
  // `size` is cut off and told as longer. Descriptors that came along are closed.
  ssize_t receive(void* message, size_t size, IpcSender* from) const;
  // The same with the descriptors that came along. *cut: there were more of them than kMostFiles,
  // or than the process may open.
  ssize_t receive_with_files(void* message, size_t size, IpcSender* from, IpcFiles* files,
                             bool* cut) const;
  // Without a wait. False, with errno: it was not sent.
  bool send_to(const sockaddr_un& to, socklen_t to_bytes, const void* message, size_t size) const;
  // To what the socket is connected to, with `files`, if there are any.
  bool send_connected(const void* message, size_t size, const IpcFiles& files) const;

 private:
  bool create(const IpcFilter& filter);
  // Called with the results of the steps; false closes the socket, errno stays.
  bool opened(bool well);

  int number_ = -1;
  uint64_t device_ = 0, inode_ = 0;
};

}  // namespace cistern::shim
