// SPDX-License-Identifier: Apache-2.0
// The lines on which importers are given what they ask for: who took the address of one that is
// gone is given nothing, at whatever moment it was.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <vector>

#include "allocator/base/os.h"
#include "shim/ipc/exporter.h"
#include "tests/catch.h"
#include "tests/hangs.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim {
namespace {

using test::made_up_process;

constexpr uint64_t kChunk = 0x7f0000000000;
constexpr uint64_t kNow = uint64_t{1} << 40;

IpcSender address_of(const OwnSocket& socket) {
  IpcSender out;
  out.address_bytes = sizeof out.address;
  REQUIRE(getsockname(socket.number(), reinterpret_cast<sockaddr*>(&out.address),
                      &out.address_bytes) == 0);
  return out;
}

// A process with a token, and an importer that asked there.
struct Asked {
  const IpcProcess process = made_up_process();
  Question question{};
  OwnSocket importer;
  IpcLines lines{};
  IpcSender address;

  Asked() {
    IpcToken token;
    REQUIRE(read_token(make_token(process, kChunk, 1000, 1), &token));
    question = test::question_for(token);
    REQUIRE(importer.open_to_ask(process, question.request.number));
    address = address_of(importer);
  }
  ~Asked() {
    lines.close_all();
    importer.close_own();
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  IpcAnswer answer(IpcStatus status) const {
    return {kAnswerMagic, kIpcVersion, status, question.proof, {}, 0, 1000, 0, 0};
  }
  void invite() {
    lines.invite(process, question.request.number, address, answer(IpcStatus::come), kNow);
  }
  bool has_asked_on_line() {
    IpcRequest request;
    IpcSender from;
    return lines.at(0).receive(&request, sizeof request, &from) == sizeof request;
  }
  bool is_given() {
    IpcFiles files;
    files.add(dup(STDERR_FILENO));
    const IpcAnswer given = answer(IpcStatus::given);
    return lines.at(0).send_connected(&given, sizeof given, files);
  }
  // The importer comes to the line, and says the word.
  void come() {
    IpcAnswer invitation;
    IpcSender line;
    REQUIRE(importer.receive(&invitation, sizeof invitation, &line) == sizeof invitation);
    CHECK(invitation.status == IpcStatus::come);
    REQUIRE(importer.connect_to(line));
    CHECK(importer.send_connected(&question.on_line, sizeof question.on_line, IpcFiles()));
  }
};

// Who has the address of an importer that is gone.
class Taker {
 public:
  explicit Taker(Asked* asked) {
    asked->importer.close_own();
    REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&asked->address.address),
                 asked->address.address_bytes) == 0);
  }
  ~Taker() { close(socket_); }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  // The statuses of all that is there. It says to each sender what one without the secret can.
  std::vector<IpcStatus> hear(const Question& question) const {
    std::vector<IpcStatus> statuses;
    for (;;) {
      IpcAnswer answer;
      IpcSender from;
      from.address_bytes = sizeof from.address;
      auto* address = reinterpret_cast<sockaddr*>(&from.address);
      if (recvfrom(socket_, &answer, sizeof answer, MSG_DONTWAIT, address, &from.address_bytes) <
          0) {
        return statuses;
      }
      statuses.push_back(answer.status);
      IpcRequest guess = question.request;
      for (const uint64_t shown : {guess.token.process.secret, answer.proof, guess.number}) {
        guess.token.process.secret = shown;
        CHECK(sendto(socket_, &guess, sizeof guess, MSG_DONTWAIT, address, from.address_bytes) > 0);
      }
    }
  }

 private:
  const int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
};

TEST_CASE("an importer comes to its line, and is given there what it asked for", "[ipc]") {
  Asked asked;
  asked.invite();
  asked.come();
  CHECK(asked.has_asked_on_line());
  CHECK(asked.is_given());
  IpcAnswer answer;
  IpcSender from;
  IpcFiles files;
  bool cut = false;
  CHECK(asked.importer.receive_with_files(&answer, sizeof answer, &from, &files, &cut) ==
        sizeof answer);
  CHECK(answer.status == IpcStatus::given);
  CHECK(files.count() == 1);
}

TEST_CASE("who takes an address before there is a line has no word to say", "[ipc]") {
  Asked asked;
  const Taker taker(&asked);
  asked.invite();
  CHECK(taker.hear(asked.question) == std::vector{IpcStatus::come});
  CHECK_FALSE(asked.has_asked_on_line());
}

TEST_CASE("who takes an address that has a line is sent nothing on it", "[ipc]") {
  Asked asked;
  asked.invite();
  SECTION("before the word") {
    const Taker taker(&asked);
    CHECK_FALSE(asked.has_asked_on_line());
    CHECK_FALSE(asked.is_given());
    CHECK(taker.hear(asked.question).empty());
  }
  SECTION("after the word") {
    asked.come();
    CHECK(asked.has_asked_on_line());
    const Taker taker(&asked);
    CHECK_FALSE(asked.is_given());
    CHECK(taker.hear(asked.question).empty());
  }
}

TEST_CASE("a line hears its importer alone, even of those that know the word", "[ipc]") {
  Asked asked;
  asked.invite();
  const IpcSender line = address_of(asked.lines.at(0));
  OwnSocket other;
  REQUIRE(other.open_to_ask(asked.process, 1));
  CHECK_FALSE(other.send_to(line.address, line.address_bytes, &asked.question.on_line,
                            sizeof asked.question.on_line));
  CHECK(errno == EPERM);
  other.close_own();
  CHECK_FALSE(asked.has_asked_on_line());
  asked.come();
  CHECK(asked.has_asked_on_line());
}

// Importers that asked at so many different times, and say no more.
struct Silent {
  static constexpr uint64_t kFirst = 100;  // of their numbers
  OwnSocket sockets[kMostLines];

  explicit Silent(Asked* asked) {
    for (uint64_t i = 0; i < kMostLines; ++i) {
      REQUIRE(sockets[i].open_to_ask(asked->process, kFirst + i));
      asked->lines.invite(asked->process, kFirst + i, address_of(sockets[i]),
                          asked->answer(IpcStatus::come), kNow + i);
    }
  }
  ~Silent() {
    for (OwnSocket& socket : sockets) socket.close_own();
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
};

TEST_CASE("an importer that asks twice has one line, and silent lines are closed", "[ipc]") {
  Asked asked;
  const long files = test::settled_files();
  asked.invite();
  asked.invite();
  CHECK(test::open_files() == files + 1);
  {
    const Silent silent(&asked);
    CHECK(test::open_files() == files + 2 * static_cast<long>(kMostLines));
    CHECK(asked.lines.has_room(kNow + kLineNs));
    CHECK_FALSE(asked.lines.empty());
    CHECK(asked.lines.has_room(kNow + kLineNs + kMostLines));
    CHECK(asked.lines.empty());
  }
  CHECK(test::open_files() == files);
}

TEST_CASE("where each line is taken, the oldest one makes room for who waits", "[ipc]") {
  Asked asked;
  const Silent silent(&asked);
  const long files = test::settled_files();
  const auto invite_at = [&](uint64_t now) {
    asked.lines.invite(asked.process, asked.question.request.number, asked.address,
                       asked.answer(IpcStatus::come), now);
    IpcAnswer come;
    IpcSender from;
    return asked.importer.receive(&come, sizeof come, &from) == sizeof come;
  };
  CHECK_FALSE(asked.lines.has_room(kNow + kFairNs));
  CHECK(asked.lines.unchanged_for(kNow + kFairNs - 5) == 5);
  CHECK_FALSE(invite_at(kNow + kFairNs));
  CHECK(asked.lines.has_room(kNow + kFairNs + 1));
  CHECK(asked.lines.unchanged_for(kNow + kFairNs + 1) == kLineNs - kFairNs - 1);
  CHECK(invite_at(kNow + kFairNs + 1));
  CHECK(test::open_files() == files);
  // The one that is the oldest now is a nanosecond younger.
  CHECK_FALSE(asked.lines.has_room(kNow + kFairNs + 1));
  CHECK(asked.lines.has_room(kNow + kFairNs + 2));
}

TEST_CASE("nobody looks at lines before anything can be done", "[ipc]") {
  Asked asked;
  CHECK(asked.lines.unchanged_for(kNow) == UINT64_MAX);
  asked.invite();
  CHECK(asked.lines.unchanged_for(kNow + 7) == kLineNs - 7);
  CHECK(asked.lines.unchanged_for(kNow + 2 * kLineNs) == 0);
}

// The kernel would look the path up, in a file system that may take as long as it likes.
TEST_CASE("an importer whose address is a path is sent nothing", "[ipc]") {
  test::hold({kChunk + 512, 2000, kChunk, false});
  const IpcToken token = test::exported(12);
  REQUIRE(serve_importers(test::find_held));
  sockaddr_un path{}, name;
  path.sun_family = AF_UNIX;
  std::snprintf(path.sun_path, sizeof path.sun_path, "/tmp/cistern-test-%d", getpid());
  unlink(path.sun_path);
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(socket, reinterpret_cast<sockaddr*>(&path), sizeof path) == 0);
  const socklen_t bytes = ipc_address(token.process, &name);
  IpcRequest request = test::request_for(token);
  for (const uint32_t version : {kIpcVersion, kIpcVersion + 1}) {
    request.version = version;
    REQUIRE(sendto(socket, &request, sizeof request, 0, reinterpret_cast<sockaddr*>(&name),
                   bytes) == sizeof request);
  }
  IpcAnswer answer;
  CHECK(test::ask(token, &answer) == IpcReply::given);  // those before are heard by then
  CHECK(recv(socket, &answer, sizeof answer, MSG_DONTWAIT) < 0);
  CHECK(errno == EAGAIN);
  close(socket);
  unlink(path.sun_path);
  end_exports_at(kChunk);
}

TEST_CASE("importers that say nothing hold others up for a while only", "[ipc]") {
  test::hold({kChunk + 512, 2000, kChunk, false});
  const IpcToken token = test::exported(11);
  REQUIRE(serve_importers(test::find_held));
  const long files = test::settled_files();
  OwnSocket silent[2 * kMostLines];
  sockaddr_un name;
  const socklen_t bytes = ipc_address(token.process, &name);
  for (uint64_t i = 0; i < std::size(silent); ++i) {
    const Question question = question_about(token, 0, i);
    REQUIRE(silent[i].open_to_ask(token.process, i));
    silent[i].send_to(name, bytes, &question.request, sizeof question.request);
  }
  IpcAnswer answer;
  CHECK(test::ask(token, &answer) == IpcReply::given);
  for (OwnSocket& socket : silent) socket.close_own();
  CHECK(test::files_become(files));
  end_exports_at(kChunk);
}

TEST_CASE("an importer whose line is closed asks anew", "[ipc]") {
  const IpcProcess process = made_up_process();
  IpcToken token;
  REQUIRE(read_token(make_token(process, kChunk, 1000, 1), &token));
  OwnSocket socket;
  REQUIRE(socket.open_for(process));
  std::atomic<int> asked{0};
  std::thread exporter([&] {
    IpcRequest request;
    IpcSender from;
    IpcLines lines{};
    const auto hear = [&](const OwnSocket& where) {
      while (where.receive(&request, sizeof request, &from) < 0) alloc::os::sleep_ns(200'000);
    };
    for (const bool answers : {false, true}) {
      hear(socket);
      ++asked;
      IpcAnswer answer{kAnswerMagic,
                       kIpcVersion,
                       IpcStatus::come,
                       proof_of(process, request.number),
                       {},
                       0,
                       1000,
                       0,
                       0};
      lines.invite(process, request.number, from, answer, kNow);
      hear(lines.at(0));
      answer.status = IpcStatus::given;
      if (answers) lines.at(0).send_connected(&answer, sizeof answer, IpcFiles());
      lines.close_all();
    }
  });
  IpcAnswer answer;
  CHECK(test::ask(token, &answer) == IpcReply::given);
  exporter.join();
  CHECK(asked == 2);
  socket.close_own();
}

TEST_CASE("a token of another version is refused before anybody is asked", "[ipc]") {
  IpcToken token;
  REQUIRE(read_token(make_token(made_up_process(), kChunk, 1000, 1), &token));
  token.version = kIpcVersion - 1;
  IpcAnswer answer;
  CHECK(test::ask(token, &answer) == IpcReply::version);
}

}  // namespace
}  // namespace cistern::shim
