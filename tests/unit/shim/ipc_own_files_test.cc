// SPDX-License-Identifier: Apache-2.0
// The descriptors of an import and of the service: the program may close them and take their
// numbers, or fork at any moment.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "allocator/base/os.h"
#include "shim/process/settings.h"
#include "tests/catch.h"
#include "tests/unit/shim/forked.h"
#include "tests/unit/shim/ipc_peers.h"
#include "tests/unit/test_clock.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kChunk = 0x7f0000000000;
constexpr int kNumbers = 1024;

IpcToken token_of(const IpcProcess& process) {
  IpcToken token;
  REQUIRE(read_token(make_token(process, kChunk, 1000, 1), &token));
  return token;
}

bool is_datagram_socket(int file) {
  int domain = 0, type = 0;
  socklen_t bytes = sizeof domain;
  return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX &&
         getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_DGRAM;
}

int datagram_sockets() {
  int count = 0;
  for (int file = 0; file < kNumbers; ++file) count += is_datagram_socket(file);
  return count;
}

// The number of the socket of an importer that waits for an answer.
int importers_socket(int other) {
  for (int file = 0; file < kNumbers; ++file) {
    if (file != other && is_datagram_socket(file)) return file;
  }
  return -1;
}

TEST_CASE("what the program gets under an importer's number is its own", "[ipc]") {
  const IpcProcess process = test::made_up_process();
  const IpcToken token = token_of(process);
  OwnSocket exporter;
  REQUIRE(exporter.open_for(process));
  std::atomic<bool> over{false};
  IpcReply reply{};
  std::thread importer([&] {
    IpcAnswer answer;
    reply = test::ask(token, &answer);
    over = true;
  });
  int number = -1;
  IpcRequest request;
  IpcSender from;
  REQUIRE(comes_true([&] { return exporter.receive(&request, sizeof request, &from) > 0; }));
  number = importers_socket(exporter.number());
  REQUIRE(number >= 0);
  int programs[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, programs) == 0);
  REQUIRE(send(programs[1], "message", 7, 0) == 7);
  REQUIRE(dup2(programs[0], number) == number);
  // It asks by another socket, and is given the block.
  REQUIRE(comes_true([&] {
    if (exporter.receive(&request, sizeof request, &from) <= 0) return over.load();
    const IpcAnswer answer{kAnswerMagic,
                           kIpcVersion,
                           IpcStatus::given,
                           proof_of(process, request.number),
                           {},
                           0,
                           1000,
                           0,
                           0};
    exporter.send_to(from.address, from.address_bytes, &answer, sizeof answer);
    return over.load();
  }));
  importer.join();
  CHECK(reply == IpcReply::given);
  char text[100];
  CHECK(recv(number, text, sizeof text, MSG_DONTWAIT) == 7);
  CHECK(recv(programs[1], text, sizeof text, MSG_DONTWAIT) < 0);  // and nothing was written there
  for (const int file : {programs[0], programs[1], number}) close(file);
  exporter.close_own();
}

// Nobody has the name, so that each question ends at once.
TEST_CASE("a child has no importer's socket, whenever it was forked", "[ipc]") {
  const IpcToken token = token_of(test::made_up_process());
  const auto ask = [&] {
    IpcAnswer answer;
    test::ask(token, &answer);
  };
  ask();
  REQUIRE(datagram_sockets() == 0);
  CHECK(test::children_that_fail(ask, [] { return datagram_sockets() == 0; }) == 0);
}

TEST_CASE("a child has no socket of the service, whenever it was forked", "[ipc]") {
  test::hold({kChunk + 512, 2000, kChunk, false});
  const IpcToken token = test::exported(1);
  REQUIRE(serve_importers(test::find_held));
  const auto ask = [&] {
    IpcAnswer answer;
    test::ask(token, &answer);
  };
  CHECK(test::children_that_fail(ask, [] {
          reset_service_after_fork();
          return datagram_sockets() == 0;
        }) == 0);
  end_exports_at(kChunk);
}

bool child_ends_well(pid_t child) {
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

pid_t forked_child() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return child;
}

// Long for a step of a few system calls. Where the machine is slow, a wait that ends too early may
// go unnoticed.
void give_time() { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }

uint64_t child_began_ns = 0;

// In the object, too, the service's handler is registered before those that watch forks.
TEST_CASE("a child closes the sockets of the service without a wait", "[ipc]") {
  const auto begins = [] { child_began_ns = test::StoppedClock::now_ns(); };
  REQUIRE(at_fork(nullptr, nullptr, begins) == 0);
  REQUIRE(at_fork(nullptr, nullptr, reset_service_after_fork) == 0);
  test::hold({kChunk + 512, 2000, kChunk, false});
  test::exported(1);
  REQUIRE(serve_importers(test::find_held));
  const test::StoppedClock clock;
  const pid_t child = fork();
  if (child == 0) _exit(datagram_sockets() == 0 && clock.now_ns() == child_began_ns ? 0 : 1);
  CHECK(child_ends_well(child));
  end_exports_at(kChunk);
}

TEST_CASE("forks and openings of descriptors wait for each other, however long", "[ipc]") {
  close_what_children_get();
  std::atomic<bool> forked{false}, opened{false};
  bool well = false;
  std::thread forks, opens;
  {
    const NoForkNow held;
    forks = std::thread([&] {
      const pid_t child = forked_child();
      forked = true;
      well = child_ends_well(child);
    });
    give_time();
    CHECK_FALSE(forked);
    opens = std::thread([&] {
      const NoForkNow next;
      opened = true;
    });
    give_time();
    CHECK_FALSE(forked);
    CHECK_FALSE(opened);
  }
  forks.join();
  opens.join();
  CHECK(well);
}

// A step that does not end.
TEST_CASE("a fork waits for a step that is stuck once, and not for ever", "[ipc]") {
  close_what_children_get();
  const test::StoppedClock clock;
  std::atomic<bool> inside{false}, forked{false};
  std::thread step([&] {
    const NoForkNow held;
    inside = true;
    while (!forked) usleep(1000);
  });
  while (!inside) usleep(1000);
  const uint64_t begin_ns = clock.now_ns();
  CHECK(child_ends_well(forked_child()));
  const uint64_t waited_ns = clock.now_ns();
  CHECK(waited_ns - begin_ns >= NoForkNow::kMostNs);
  CHECK(child_ends_well(forked_child()));
  CHECK(clock.now_ns() == waited_ns);
  forked = true;
  step.join();
}

std::atomic<bool> fork_stays{false}, fork_is_inside{false};

// The handler is registered before Cistern's and after the clock's, which keeps its lock in forks.
TEST_CASE("a step waits for a fork that is stuck once, and not for ever", "[ipc]") {
  const auto stays = [] {
    fork_is_inside = true;
    while (fork_stays) usleep(1000);
  };
  REQUIRE(at_fork(stays, nullptr, nullptr) == 0);
  close_what_children_get();
  const test::StoppedClock clock;
  fork_stays = true;
  bool well = false;
  std::thread forks([&] { well = child_ends_well(forked_child()); });
  while (!fork_is_inside) usleep(1000);
  const uint64_t begin_ns = clock.now_ns();
  { const NoForkNow first; }
  const uint64_t waited_ns = clock.now_ns();
  CHECK(waited_ns - begin_ns >= NoForkNow::kMostNs);
  { const NoForkNow second; }
  CHECK(clock.now_ns() == waited_ns);
  sigset_t blocked;
  CHECK(pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0);
  CHECK(sigismember(&blocked, SIGUSR1) == 0);
  fork_stays = false;
  forks.join();
  CHECK(well);
}

std::atomic<bool> handler_runs{false}, handler_is_served{false};

// The handler has another thread fork, since ThreadSanitizer allows no fork in a handler. Inside
// the step it would wait until the fork does not wait for the step any more.
TEST_CASE("a signal handler forks once its thread has opened the descriptor", "[ipc]") {
  close_what_children_get();
  const test::StoppedClock clock;
  const uint64_t begin_ns = clock.now_ns();
  bool well = false;
  std::thread forks([&] {
    while (!handler_runs) usleep(1000);
    well = child_ends_well(forked_child());
    handler_is_served = true;
  });
  struct sigaction waits {
  }, before;
  waits.sa_handler = [](int) {
    handler_runs = true;
    while (!handler_is_served) usleep(1000);
  };
  REQUIRE(sigaction(SIGUSR1, &waits, &before) == 0);
  {
    const NoForkNow held;
    CHECK(raise(SIGUSR1) == 0);
    CHECK_FALSE(handler_runs);
  }
  CHECK(handler_runs);
  forks.join();
  sigaction(SIGUSR1, &before, nullptr);
  CHECK(well);
  CHECK(clock.now_ns() == begin_ns);  // nothing has waited
}

TEST_CASE("a child waits for no fork and no step of its parent", "[ipc]") {
  close_what_children_get();
  const test::StoppedClock clock;
  const NoForkNow held;  // as a handler inside a step would have it
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t begin_ns = clock.now_ns();
    { const NoForkNow again; }
    const bool well = child_ends_well(forked_child());
    _exit(well && clock.now_ns() == begin_ns ? 0 : 1);
  }
  CHECK(child_ends_well(child));
}

}  // namespace
}  // namespace cistern::shim
