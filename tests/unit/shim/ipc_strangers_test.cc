// SPDX-License-Identifier: Apache-2.0
// What strangers do to an exporter and to an importer: users that a namespace does not tell apart,
// messages without the secret, descriptors whose close takes as long as the sender likes, and names
// that were taken. Addresses that were taken: ipc_lines_test.cc.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "allocator/base/os.h"
#include "shim/ipc/protocol.h"
#include "tests/catch.h"
#include "tests/hangs.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim {
namespace {

using test::ask;
using test::exported;
using test::find_held;
using test::open_files;
using test::request_for;
using test::send_raw;

constexpr uint64_t kChunk = 0x7f0000000000;
constexpr int kCannot = 99;
constexpr uid_t kNobody = 65534;

void hold() { test::hold({kChunk + 512, 2000, kChunk, false}); }

// The exit status of a child that knows nothing of the parent's tokens.
template <typename Child>
int in_fresh_child(Child child) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(kHangsS);
    reset_service_after_fork();
    reset_exports_after_fork();
    _exit(child());
  }
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a user that the namespace does not tell from others is nobody's own", "[ipc]") {
  hold();
  const int status = in_fresh_child([] {
    if (unshare(CLONE_NEWUSER) != 0) return kCannot;
    if (getuid() != kNobody) return kCannot;  // this system has another overflow id
    const IpcToken token = exported(1);
    look_at_users();
    if (is_own_user(getuid())) return 1;
    if (test::answered(test::on_line_for(token)).status != IpcStatus::refused) return 2;
    return serve_importers(find_held) ? 3 : 0;
  });
  CHECK((status == 0 || status == kCannot));
}

TEST_CASE("an importer trusts no exporter that may be any user", "[ipc]") {
  hold();
  const IpcToken token = exported(1);
  REQUIRE(serve_importers(find_held));
  const int status = in_fresh_child([&] {
    if (unshare(CLONE_NEWUSER) != 0 || getuid() != kNobody) return kCannot;
    IpcAnswer answer;
    return static_cast<int>(ask(token, &answer));
  });
  CHECK((status == static_cast<int>(IpcReply::refused) || status == kCannot));
  end_exports_at(kChunk);
}

TEST_CASE("where all ids are mapped, nobody is a user like any other", "[ipc]") {
  hold();
  const int status = in_fresh_child([] {
    if (setuid(kNobody) != 0) return kCannot;
    look_at_users();
    if (!is_own_user(kNobody)) return kCannot;  // the test itself runs in a namespace
    const IpcToken token = exported(2);
    IpcAnswer answer;
    if (!serve_importers(find_held)) return 1;
    return ask(token, &answer) == IpcReply::given ? 0 : 2;
  });
  CHECK((status == 0 || status == kCannot));
}

// While there is one, the service's thread is busy with a question, and receives nothing.
class BusyService {
 public:
  explicit BusyService(unsigned char byte) {
    constexpr uint64_t kUnit = 2 << 20;
    test::hold({kChunk + 4096, kUnit - 4096, kChunk + 4096, true});
    test::hold_units({4096, kUnit, 1, nullptr, [this] {
                        busy_ = true;
                        while (!go_on_) alloc::os::sleep_ns(200'000);
                      }});
    token_ = exported(byte);
    REQUIRE(serve_importers(find_held));
    importer_ = std::thread([this] {
      IpcAnswer answer;
      ask(token_, &answer);
    });
    REQUIRE(comes_true([&] { return busy_.load(); }));
  }
  ~BusyService() { serve_again(); }
  BusyService(const BusyService&) = delete;
  BusyService& operator=(const BusyService&) = delete;

  const IpcToken& token() const { return token_; }
  // What was sent meanwhile is received.
  void serve_again() {
    go_on_ = true;
    if (importer_.joinable()) importer_.join();
  }
  bool serves() const {
    IpcAnswer answer;
    return ask(token_, &answer) == IpcReply::given;
  }

 private:
  std::atomic<bool> busy_{false}, go_on_{false};
  IpcToken token_{};
  std::thread importer_;
};

// The queue has room for few messages.
TEST_CASE("messages without the secret take no place in the queue", "[ipc]") {
  BusyService service(3);
  const IpcToken& token = service.token();
  const IpcRequest right = request_for(token);
  IpcRequest with_secret = right, guessed = right;
  with_secret.token = token;
  guessed.token.process.secret ^= uint64_t{1} << 40;
  int lost = 0;
  for (int i = 0; i < 2000; ++i) {
    lost += !send_raw(token.process, &guessed, sizeof guessed, -1);
    lost += !send_raw(token.process, &with_secret, sizeof with_secret, -1);
    lost += !send_raw(token.process, &right, sizeof right - 1, -1);
    lost += !send_raw(token.process, &right, 0, -1);
  }
  CHECK(lost == 0);
  int taken = 0;
  while (taken < 2000 && send_raw(token.process, &right, sizeof right, -1)) ++taken;
  CHECK(taken > 0);
  CHECK(taken < 2000);  // the thread received nothing meanwhile
  service.serve_again();
  CHECK(service.serves());
  end_exports_in(token.address, 1);
}

// The number of the service's socket.
int service_socket(const IpcProcess& process) {
  sockaddr_un wanted, name;
  const socklen_t length = ipc_address(process, &wanted);
  for (int file = 0; file < 1024; ++file) {
    socklen_t bytes = sizeof name;
    if (getsockname(file, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 && bytes == length &&
        std::memcmp(&name, &wanted, length) == 0) {
      return file;
    }
  }
  return -1;
}

// As before Linux 6.16.
class TakesDescriptors {
 public:
  explicit TakesDescriptors(int socket) : socket_(socket) { set(1); }
  ~TakesDescriptors() { set(0); }
  TakesDescriptors(const TakesDescriptors&) = delete;
  TakesDescriptors& operator=(const TakesDescriptors&) = delete;

 private:
  void set(int on) const {
    constexpr int kPassRights = 83;
    static_cast<void>(setsockopt(socket_, SOL_SOCKET, kPassRights, &on, sizeof on));
  }

  int socket_;
};

// While the service's thread is busy, a descriptor that arrived stays open in the queue.
TEST_CASE("a descriptor that comes without the secret is closed where it was sent", "[ipc]") {
  BusyService service(4);
  const IpcToken& token = service.token();
  const TakesDescriptors takes(service_socket(token.process));
  const IpcRequest right = request_for(token);
  IpcRequest guessed = right;
  guessed.token.process.secret ^= 1;
  for (const bool knows : {false, true}) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    REQUIRE(send_raw(token.process, knows ? &right : &guessed, sizeof right, ends[1]));
    close(ends[1]);
    char byte;
    CHECK(read(ends[0], &byte, 1) == (knows ? -1 : 0));  // 0: no copy is open any more
    close(ends[0]);
  }
  service.serve_again();
  CHECK(service.serves());
  end_exports_in(token.address, 1);
}

// A connection whose far end reads nothing, with unsent data. Who closes the last copy of `near`
// waits a minute, unless the process ends or the far end is closed.
struct Lingering {
  int near = -1, far = -1;

  bool open() {
    const int listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    const linger minute{1, 60};
    const bool there = bind(listens, name, bytes) == 0 && listen(listens, 1) == 0 &&
                       getsockname(listens, name, &bytes) == 0 &&
                       (connect(near, name, bytes) == 0 || errno == EINPROGRESS) &&
                       (far = accept(listens, nullptr, nullptr)) >= 0 &&
                       setsockopt(near, SOL_SOCKET, SO_LINGER, &minute, sizeof minute) == 0;
    close(listens);
    static const char data[1 << 16] = {};
    while (there && send(near, data, sizeof data, MSG_NOSIGNAL) > 0) {
    }
    return there;
  }
};

// Sent by a child, whose end closes its copies at once, so that the one in the message is the last.
void send_lingering(const IpcProcess& process, const IpcRequest& request, int near) {
  int gate[2];
  REQUIRE(pipe(gate) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char byte;
    if (read(gate[0], &byte, 1) != 0) _exit(1);
    send_raw(process, &request, sizeof request, near);
    _exit(0);
  }
  close(near);
  close(gate[0]);
  close(gate[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

// The service's thread is busy until all was sent, so that what it receives is the last copy.
TEST_CASE("where the kernel cannot refuse them, descriptors are closed without a wait", "[ipc]") {
  Lingering connection;
  if (!connection.open()) {
    WARN("no connection of this machine to itself");
    return;
  }
  REQUIRE(serve_importers(find_held));
  const long files = test::settled_files();
  BusyService service(8);
  const IpcToken& token = service.token();
  const TakesDescriptors takes(service_socket(token.process));
  const IpcRequest right = request_for(token);
  send_lingering(token.process, right, connection.near);
  for (int i = 0; i < 3; ++i) {
    CHECK(send_raw(token.process, &right, sizeof right, STDERR_FILENO));
  }
  service.serve_again();
  CHECK(service.serves());
  close(connection.far);
  CHECK(test::files_become(files - 2));  // without both ends of the connection
  end_exports_in(token.address, 1);
}

TEST_CASE("who has a token sends no descriptor either, if the kernel can refuse it", "[ipc]") {
  hold();
  const IpcToken token = exported(5);
  REQUIRE(serve_importers(find_held));
  constexpr int kPassRights = 83;
  const int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), off = 0;
  const bool can = setsockopt(probe, SOL_SOCKET, kPassRights, &off, sizeof off) == 0;
  close(probe);
  if (!can) {
    WARN("the kernel has no SO_PASSRIGHTS (Linux 6.16)");
    return;
  }
  const IpcRequest right = request_for(token);
  CHECK_FALSE(send_raw(token.process, &right, sizeof right, STDERR_FILENO));
  CHECK(errno == EPERM);
  CHECK(send_raw(token.process, &right, sizeof right, -1));
  IpcAnswer answer;
  CHECK(ask(token, &answer) == IpcReply::given);
  end_exports_at(kChunk);
}

TEST_CASE("a socket that the program closed is opened again, and its tokens go on", "[ipc][race]") {
  hold();
  const IpcToken token = exported(6);
  REQUIRE(serve_importers(find_held));
  const int file = service_socket(token.process);
  REQUIRE(file >= 0);
  SECTION("closed") { close(file); }
  SECTION("and its number is another file's") { REQUIRE(dup2(STDERR_FILENO, file) == file); }
  // The thread answers from a socket of its own alone; a new one may have the same number.
  CHECK(comes_true([&] {
    IpcAnswer answer;
    return ask(token, &answer) == IpcReply::given;
  }));
  CHECK(service_socket(token.process) >= 0);
  if (fcntl(file, F_GETFD) >= 0 && service_socket(token.process) != file) close(file);
  end_exports_at(kChunk);
}

TEST_CASE("where a stranger has the name, tokens get another one", "[ipc]") {
  hold();
  const int status = in_fresh_child([] {
    const IpcToken before = exported(7);
    OwnSocket stranger;
    if (!stranger.open_for(before.process)) return 1;
    if (!serve_importers(find_held)) return 2;
    const IpcToken after = exported(7);
    if (after.process.name == before.process.name) return 3;
    if (after.process.secret == before.process.secret) return 4;
    IpcAnswer answer;
    if (ask(after, &answer) != IpcReply::given) return 5;
    return own_token(before) && own_token(after) ? 0 : 6;
  });
  CHECK(status == 0);
}

// Without the secret there is no proof, and what has none does not come in, nor do descriptors.
TEST_CASE("whoever has an exporter's name alone learns no secret and is not heard", "[ipc]") {
  const IpcProcess exporter = test::made_up_process();
  OwnSocket stranger;
  REQUIRE(stranger.open_for(exporter));
  IpcToken token;
  REQUIRE(read_token(make_token(exporter, kChunk, 1000, 1), &token));
  const long files = test::settled_files();
  std::atomic<int> wrong{0}, heard{0};
  std::atomic<bool> stop{false};
  std::thread answers([&] {
    while (!stop) {
      IpcRequest request;
      IpcSender from;
      if (stranger.receive(&request, sizeof request, &from) < 0) {
        alloc::os::sleep_ns(200'000);
        continue;
      }
      ++heard;
      wrong += request.token.process.secret == exporter.secret;
      // Connected, as a line is, so that it could send descriptors.
      OwnSocket line;
      if (!line.open_line(exporter, request.number, from)) continue;
      IpcFiles sent;
      sent.add(dup(STDERR_FILENO));
      for (const auto status : {IpcStatus::come, IpcStatus::given}) {
        for (const uint64_t proof : {request.number, pass_of(exporter), uint64_t{0}}) {
          const IpcAnswer answer{kAnswerMagic, kIpcVersion, status, proof, {}, 0, 1000, 0, 0};
          line.send_connected(&answer, sizeof answer, sent);
        }
      }
      line.close_own();
    }
  });
  IpcPatience patience{300'000'000};
  IpcAnswer answer;
  IpcFiles came;
  CHECK(ask_exporter(token, 0, &patience, &answer, &came) == IpcReply::silent);
  stop = true;
  answers.join();
  CHECK(heard > 0);
  CHECK(wrong == 0);
  stranger.close_own();
  CHECK(open_files() == files - 1);
}

}  // namespace
}  // namespace cistern::shim
