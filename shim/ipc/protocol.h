// SPDX-License-Identifier: Apache-2.0
// Tokens, and the messages between a process that opens one and the process that made it. The
// messages are datagrams over sockets in the abstract namespace, which go with their process. They
// arrive whole or not at all, so no peer can delay the other with half a message. The kernel adds
// the sender's user (SCM_CREDENTIALS). Only the fields below are read, and only if size, magic and
// version are right.
//
// When an answer is sent, another process may have taken the importer's address. So nothing about a
// block is ever sent to an address:
//   importer → the exporter's name       a request, which shows the pass
//   exporter → the importer's address    `come`, from a socket for this importer alone, its line,
//                                        which is connected to whatever socket is there now
//   importer, connected to the line →    the request again, which shows the word
//   exporter → the line                  the answer, with descriptors where the block is in units
// A line sends to, and hears, only the one socket that it is connected to, even if another process
// takes the address. A peer that showed the word there has the token (exporter.h).
//
// Strangers know the socket's name. Their messages must not even arrive: each wakes the receiver,
// and the receiver must close descriptors that come along, which may take as long as the sender
// likes (SO_LINGER). So each socket has a filter that the kernel applies in the sender's call. A
// process that has a token passes the filter, also as another user. Before Linux 6.16 the kernel
// cannot refuse its descriptors: they are received, and closed without a wait.
//
// Another thread may fork while a thread has descriptors in hand. The child inherits the
// descriptors and the thread's record of them, and closes them. So no fork may come between opening
// and recording a descriptor, or between closing and forgetting it: forks and these steps wait for
// each other. A step blocks signals, because a signal handler that forks would wait for its own
// thread. Any thread.
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

// --- Tokens: the content of a CUipcMemHandle for a block inside a chunk, or in units. The driver's
// handle names the whole chunk and has no room for the block's place in it; for units the driver
// has no handle. So the program gets a token that names the process and the block. A process that
// opens it asks that process for the driver's handle, or for descriptors of the units (exporter.h,
// client.h). 64 bits that are Cistern's and a checksum tell a token from a handle of the driver.
// The driver does not know tokens.

inline constexpr uint32_t kIpcVersion = 4;  // of tokens and of messages

// The process that exports. `name` and `secret` are random, made with its first token. The name is
// that of its socket, where every user of the machine can read it. It tells a process from a later
// one with the same number. The secret is only in tokens and is never sent: a message shows a pass,
// a word or a proof, which are computed from it.
struct IpcProcess {
  uint64_t name;
  uint64_t secret;
  int32_t number;
  uint32_t network;  // its network namespace: its sockets cannot be reached from another one
};

struct IpcToken {
  uint64_t magic;
  uint32_t version;
  uint32_t checksum;
  IpcProcess process;
  uint64_t address;  // the block's, in that process
  uint64_t bytes;    // requested
  uint64_t chunk;    // the number of the export of its chunk, or of the block in units (exporter.h)
};
static_assert(sizeof(IpcToken) == sizeof(CUipcMemHandle));

CUipcMemHandle make_token(const IpcProcess& process, uint64_t address, uint64_t bytes,
                          uint64_t chunk);
// False if the handle is no token, for example one of the driver's. The token's version may differ
// from kIpcVersion.
bool read_token(const CUipcMemHandle& handle, IpcToken* out);

inline bool same_process(const IpcProcess& a, const IpcProcess& b) {
  return a.name == b.name && a.secret == b.secret;
}

// The pass shows that the sender of a request has a token. It is the same in all requests to a
// process, so that the kernel's filter can check it. A process that takes the socket's name learns
// the pass.
uint64_t pass_of(const IpcProcess& process);
// The proof shows that the sender of an answer has the secret. It cannot be computed from the
// request with that number, or from other answers.
uint64_t proof_of(const IpcProcess& process, uint64_t number);
// The word shows that the peer on a line has the token. The line was opened for the request with
// that number (exporter.h).
uint64_t word_of(const IpcProcess& process, uint64_t number);
// A copy of the token for a message: with `shown`, the pass or the word, in place of the secret.
IpcToken showing(const IpcToken& token, uint64_t shown);

// Describes the calling process, with a new random name and secret; false if the system has no
// random numbers. No cancellation point.
bool describe_ipc_process(IpcProcess* out);
// The network namespace of the calling process, 0 if that is not known.
uint32_t network_namespace();

// --- Messages, and the sockets and descriptors that carry them.

// From the first call on, forks wait for NoForkNow, and each forked child calls close().
void watch_forks(void (*close)());

// While one exists, no fork begins, and the calling thread's signals are blocked. Do not nest them.
// Hold one only for a few system calls that do not wait. The destructor leaves errno alone.
class NoForkNow {
 public:
  NoForkNow();
  ~NoForkNow() { leave(); }
  NoForkNow(const NoForkNow&) = delete;
  NoForkNow& operator=(const NoForkNow&) = delete;

  // The longest wait of one side for the other, which may never be over: a debugger stops a thread,
  // or a thread closes a descriptor of a slow file system. Or a fork handler that was registered
  // before this object was loaded waits for a lock that the caller holds.
  static constexpr uint64_t kMostNs = 3'000'000'000;

 private:
  void leave();

  sigset_t signals_;  // the caller's
};

// While one exists, a forked child calls T::close_in_child() of the object. At most kMost objects
// at a time are recorded; children do not close the others.
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
      if (place.load() == nullptr) continue;
      place.exchange(nullptr)->close_in_child();
    }
  }

 private:
  static constexpr size_t kMost = 256;
  static inline constinit std::atomic<T*> places[kMost]{};
  std::atomic<T*>* place_ = nullptr;
};

// Whether a peer belongs to this process's user. Equal ids do not prove that in a user namespace:
// all users that the namespace does not map share one id there, the overflow id (usually 65534,
// `nobody`). So a process with the overflow id accepts no peer. If all ids are mapped, as outside
// of namespaces, the overflow id is a user like any other.

// Reads from the kernel what is_own_user() needs; call it before. Any thread; no cancellation
// point. Once is enough for threads: a process can change its user namespace only while it has one
// thread.
void look_at_users();

// `user` is the peer's, from SCM_CREDENTIALS. Any thread.
bool is_own_user(uid_t user);

inline constexpr uint64_t kRequestMagic = 0x51c9a1d07be33f5e;
inline constexpr uint64_t kAnswerMagic = 0x6be2f8041c97d3aa;

struct IpcRequest {
  uint64_t magic;
  uint32_t version;
  uint32_t first;   // the first of the block's units whose descriptor is wanted
  uint64_t number;  // random, from the importer; the answer shows proof_of() it
  IpcToken token;   // with the pass or the word instead of its secret
};

enum class IpcStatus : uint32_t {
  given,
  gone,     // the block was freed, or never was
  refused,  // another user asks
  version,  // the exporter has another version, that of the answer
  unable,   // the exporter cannot get descriptors of the units
  come,     // repeat the request to the socket that sent this, the line
};

struct IpcAnswer {
  uint64_t magic;
  uint32_t version;
  IpcStatus status;
  uint64_t proof;  // of the request's number
  // If `given`: the driver's handle of the chunk, and the block's place in the chunk.
  CUipcMemHandle handle;
  uint64_t offset;
  uint64_t bytes;
  // If the block lies in units: there is no handle, and `offset` is that in the first unit. With
  // the answer come descriptors of the units from IpcRequest::first on, kMostFiles at most.
  uint64_t unit_bytes;  // 0: in a chunk
  uint64_t units;
};

// The most descriptors that Cistern sends with one message, and that the kernel allows with one.
inline constexpr uint32_t kMostFiles = 64;
inline constexpr uint32_t kMostOfKernel = 253;

// Moves a descriptor to a high number with close-on-exec, because programs expect the low numbers
// for files of their own. Returns the new number, or `file` if no high number is free.
int out_of_the_way(int file);

// Descriptors that one thread has in hand. They are closed when this object ends, and in a child
// that is forked while it exists.
class IpcFiles {
 public:
  IpcFiles() : known_(this) {}
  ~IpcFiles() { close_all(); }
  IpcFiles(const IpcFiles&) = delete;
  IpcFiles& operator=(const IpcFiles&) = delete;

  uint32_t count() const { return count_; }
  int number(uint32_t i) const { return numbers_[i]; }
  const int* numbers() const { return numbers_; }
  // To be called only while there are fewer than kMostOfKernel.
  void add(int number) { numbers_[count_++] = number; }
  // Closes all without a wait, even if a sender set a socket to wait for unsent data (SO_LINGER).
  // Leaves errno alone.
  void close_all();
  void take_all(IpcFiles* others);
  void close_in_child();

 private:
  int numbers_[kMostOfKernel];
  uint32_t count_ = 0;
  const InHand<IpcFiles> known_;
};

// From the first call on, a forked child closes all descriptors that were in hand at the fork. The
// first call comes when the object is loaded: fork handlers that are registered later run before
// Cistern's, so nobody waits for them.
void close_what_children_get();

// The address of the socket of a process; its length.
socklen_t ipc_address(const IpcProcess& process, sockaddr_un* out);

// A filter accepts only messages of `bytes` bytes with `word` at offset `at`.
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

  // Whether it is an abstract address. A path is never one of Cistern's sockets, and another user's
  // file system may delay its look-up for ever.
  bool has_address() const {
    return address_bytes > sizeof address.sun_family && address.sun_path[0] == '\0';
  }
};

// A socket of Cistern's, under a high number. If the program closes it and the number becomes
// another file, calls fail with EBADF. Any thread may call still_ours(); only one thread at a time
// may call the others.
class OwnSocket {
 public:
  // Bound to the name of this process. No descriptor comes in where the kernel can refuse them all
  // (SO_PASSRIGHTS, Linux 6.16). False, with errno: EADDRINUSE, if somebody has the name.
  bool open_for(const IpcProcess& process);
  // An importer's, bound to a name that the kernel chooses. False, with errno.
  bool open_to_ask(const IpcProcess& process, uint64_t number);
  // Opens a line to the socket that has the address `to` now. The line is bound only after it is
  // connected, so that no other socket can ever send to it. It takes no descriptors, as in
  // open_for(). False, with errno.
  bool open_line(const IpcProcess& process, uint64_t number, const IpcSender& to);
  // From now on this socket receives from and sends to only that one.
  bool connect_to(const IpcSender& to) const;
  void disconnect() const;
  bool still_ours() const;
  void close_own();
  // The same, for fork handlers in the child: it does not wait for the fork to end.
  void close_in_child();
  int number() const { return number_; }

  // Takes a message from the queue, without a wait. Returns its whole size, also if it was longer
  // than `size` and cut off; -1 if there is none. Closes descriptors that came with it.
  ssize_t receive(void* message, size_t size, IpcSender* from) const;
  // The same, but keeps the descriptors. *cut: some were lost, because they were more than
  // kMostFiles or than the process may open.
  ssize_t receive_with_files(void* message, size_t size, IpcSender* from, IpcFiles* files,
                             bool* cut) const;
  // Without a wait. False, with errno: it was not sent.
  bool send_to(const sockaddr_un& to, socklen_t to_bytes, const void* message, size_t size) const;
  // Sends to the connected socket, with the descriptors in `files`.
  bool send_connected(const void* message, size_t size, const IpcFiles& files) const;

 private:
  bool create(const IpcFilter& filter);
  // Ends the opening; `well`: all steps succeeded. If not, closes the socket and leaves errno
  // alone.
  bool opened(bool well);

  int number_ = -1;
  uint64_t device_ = 0, inode_ = 0;
};

}  // namespace cistern::shim
