// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "allocator/base/os.h"
#include "tests/catch.h"
#include "tests/hangs.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim {
namespace {

using test::answered;
using test::ask;
using test::exported;
using test::files_become;
using test::find_held;
using test::made_up_process;
using test::on_line_for;
using test::request_for;
using test::settled_files;

constexpr uint64_t kChunk = 0x7f0000000000;

void hold(uint64_t offset, uint64_t bytes) { test::hold({kChunk + offset, bytes, kChunk, false}); }

bool is_handle(const CUipcMemHandle& handle, unsigned char byte) {
  const CUipcMemHandle wanted = test::handle_of_driver(byte);
  return std::memcmp(&handle, &wanted, sizeof handle) == 0;
}

CUipcMemHandle handle_with(const IpcToken& token) {
  CUipcMemHandle handle;
  std::memcpy(&handle, &token, sizeof handle);
  return handle;
}

// Its exit status.
template <typename Child>
int in_child(Child child) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(kHangsS);
    _exit(child());
  }
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a token is read as it was made, and nothing else is a token", "[ipc]") {
  hold(4096, 1000);
  const IpcToken token = exported(1);
  CHECK(token.version == kIpcVersion);
  CHECK(token.process.number == getpid());
  CHECK(token.process.network == network_namespace());
  CHECK(token.address == kChunk + 4096);
  CHECK(token.bytes == 1000);
  IpcToken read;
  CHECK_FALSE(read_token(CUipcMemHandle{}, &read));
  for (size_t bit = 0; bit < 8 * sizeof(CUipcMemHandle); ++bit) {
    CUipcMemHandle changed = handle_with(token);
    changed.reserved[bit / 8] = static_cast<char>(changed.reserved[bit / 8] ^ (1 << bit % 8));
    INFO(bit);
    CHECK_FALSE(read_token(changed, &read));
  }
  IpcToken unmarked = token;
  unmarked.magic = unmarked.checksum = 0;
  const CUipcMemHandle bytes = handle_with(unmarked);
  uint32_t sum = 0x811c9dc5;
  for (const char byte : bytes.reserved)
    sum = (sum ^ static_cast<unsigned char>(byte)) * 0x01000193;
  unmarked.checksum = sum;
  CHECK_FALSE(read_token(handle_with(unmarked), &read));
  unmarked = token;
  CHECK(read_token(handle_with(unmarked), &read));
}

TEST_CASE("a token names its block as long as the program holds it", "[ipc]") {
  hold(4096, 1000);
  const IpcRequest request = on_line_for(exported(2));
  const IpcAnswer answer = answered(request);
  CHECK(answer.magic == kAnswerMagic);
  CHECK(answer.proof == proof_of(*exporting_process(), request.number));
  CHECK(answer.status == IpcStatus::given);
  CHECK(answer.offset == 4096);
  CHECK(answer.bytes == 1000);
  hold(0, 1 << 20);
  CHECK(answered(request).status == IpcStatus::gone);
  hold(4000, 1000);
  CHECK(answered(request).status == IpcStatus::gone);
  hold(4096, 999);
  CHECK(answered(request).status == IpcStatus::gone);
  hold(4096, 0);
  CHECK(answered(request).status == IpcStatus::gone);
  hold(4096, 1000);
  CHECK(answered(request).status == IpcStatus::given);
  end_exports_at(kChunk);
}

TEST_CASE("a token never names a later chunk at the same address", "[ipc]") {
  hold(4096, 1000);
  const IpcRequest first = on_line_for(exported(3));
  CHECK(is_handle(answered(first).handle, 3));
  end_exports_at(kChunk + 1);
  CHECK(answered(first).status == IpcStatus::given);
  end_exports_at(kChunk);
  CHECK(answered(first).status == IpcStatus::gone);
  const IpcRequest second = on_line_for(exported(4));
  CHECK(answered(first).status == IpcStatus::gone);
  CHECK(is_handle(answered(second).handle, 4));
  end_exports_of(nullptr);
  CHECK(answered(second).status == IpcStatus::given);
  end_exports_of(test::some_context());
  CHECK(answered(second).status == IpcStatus::gone);
}

TEST_CASE("who may not ask, or asks in other words, gets no handle", "[ipc]") {
  hold(0, 1000);
  const IpcToken token = exported(5);
  const IpcRequest right = on_line_for(token);
  const auto to = [](const auto& message, size_t size, uid_t user) {
    IpcFiles files;
    return answer_message(&message, size, user, find_held, &files);
  };
  CHECK(to(right, sizeof right, getuid()).status == IpcStatus::given);
  CHECK(to(right, sizeof right, getuid() + 1).status == IpcStatus::refused);
  CHECK(is_handle(to(right, sizeof right, getuid() + 1).handle, 0));
  for (const size_t size : {size_t{0}, sizeof right - 1, sizeof right + 1}) {
    CHECK(to(right, size, getuid()).magic == 0);
  }
  IpcRequest other = right;
  other.magic ^= 1;
  CHECK(answered(other).magic == 0);
  other = right;
  other.version = kIpcVersion + 1;
  CHECK(answered(other).status == IpcStatus::version);
  other = right;
  other.token.chunk += 1;
  CHECK(answered(other).status == IpcStatus::gone);
  for (const int member : {0, 1}) {
    IpcToken elsewhere = token;
    (member == 0 ? elsewhere.process.name : elsewhere.process.secret) ^= 1;
    CHECK(answered(on_line_for(elsewhere)).magic == 0);
  }
  IpcRequest with_secret = right;
  with_secret.token = token;
  CHECK(answered(with_secret).magic == 0);
  end_exports_at(kChunk);
}

TEST_CASE("an answer counts if it is one to the question and can be right", "[ipc]") {
  hold(100, 1000);
  const IpcToken token = exported(6);
  const Question question = test::question_for(token);
  const IpcAnswer right = answered(question.on_line);
  IpcAnswer out;
  IpcReply reply;
  const auto read = [&](const IpcAnswer& answer) {
    return read_answer(&answer, sizeof answer, question, 0, &out, &reply);
  };
  CHECK(read(right));
  CHECK(reply == IpcReply::given);
  CHECK_FALSE(read_answer(&right, sizeof right - 1, question, 0, &out, &reply));
  const Question another = question_about(token, 0, question.request.number + 1);
  CHECK_FALSE(read_answer(&right, sizeof right, another, 0, &out, &reply));
  IpcAnswer wrong = right;
  wrong.magic = 0;
  CHECK_FALSE(read(wrong));
  const auto replied = [&](auto change) {
    wrong = right;
    change();
    CHECK(read(wrong));
    return reply;
  };
  CHECK(replied([&] { wrong.version = 9; }) == IpcReply::version);
  CHECK(replied([&] { wrong.status = IpcStatus::refused; }) == IpcReply::refused);
  CHECK(replied([&] { wrong.status = IpcStatus::gone; }) == IpcReply::gone);
  CHECK(replied([&] { wrong.status = static_cast<IpcStatus>(77); }) == IpcReply::gone);
  CHECK(replied([&] { wrong.bytes = 1001; }) == IpcReply::gone);
  CHECK(replied([&] { wrong.offset = UINT64_MAX - 500; }) == IpcReply::gone);
  end_exports_at(kChunk);
}

TEST_CASE("the exporter answers over its socket, whatever else comes there", "[ipc]") {
  hold(512, 2000);
  const IpcToken token = exported(7);
  REQUIRE(serve_importers(find_held));
  CHECK(serve_importers(find_held));
  const long files = settled_files();
  IpcAnswer answer;
  REQUIRE(ask(token, &answer) == IpcReply::given);
  CHECK(is_handle(answer.handle, 7));
  CHECK(answer.offset == 512);

  const IpcRequest with_file = request_for(token);
  for (const size_t size : {sizeof with_file, size_t{1}, size_t{0}}) {
    test::send_raw(token.process, &with_file, size, STDERR_FILENO);  // the kernel may refuse it
    CHECK(ask(token, &answer) == IpcReply::given);
  }
  CHECK(files_become(files));
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    const unsigned char garbage[4096] = {1, 2, 3};
    for (size_t size = 0; !stop; size = (size + 97) % sizeof garbage) {
      test::send_raw(token.process, garbage, size, STDERR_FILENO);
    }
  });
  for (int i = 0; i < 100; ++i) CHECK(ask(token, &answer) == IpcReply::given);
  stop = true;
  flood.join();
  CHECK(ask(token, &answer) == IpcReply::given);
  CHECK(files_become(files));
  end_exports_at(kChunk);
  CHECK(ask(token, &answer) == IpcReply::gone);
}

TEST_CASE("a forked child answers for nobody, and the parent for itself alone", "[ipc]") {
  hold(512, 2000);
  const IpcToken token = exported(8);
  REQUIRE(serve_importers(find_held));
  const int status = in_child([&] {
    reset_service_after_fork();
    reset_exports_after_fork();
    if (exporting_process() != nullptr) return 1;
    IpcAnswer answer;
    if (ask(token, &answer) != IpcReply::given) return 2;
    const IpcToken own = exported(9);
    if (own.process.name == token.process.name || own.process.secret == token.process.secret)
      return 3;
    const IpcRequest request = on_line_for(own);
    return is_handle(answered(request).handle, 9) ? 0 : 4;
  });
  CHECK(status == 0);
  IpcAnswer answer;
  CHECK(ask(token, &answer) == IpcReply::given);
  end_exports_at(kChunk);
}

TEST_CASE("another user, and another network, get no handle", "[ipc]") {
  hold(512, 2000);
  const IpcToken token = exported(10);
  REQUIRE(serve_importers(find_held));
  constexpr int kCannot = 99;
  const auto reply_to = [&](auto become) {
    return in_child([&] {
      if (!become()) return kCannot;
      IpcAnswer answer;
      return static_cast<int>(ask(token, &answer));
    });
  };
  const int as_another = reply_to([] { return setuid(getuid() + 65'000) == 0; });
  if (as_another != kCannot) CHECK(as_another == static_cast<int>(IpcReply::refused));
  const int elsewhere = reply_to([] { return unshare(CLONE_NEWNET) == 0; });
  if (elsewhere != kCannot) CHECK(elsewhere == static_cast<int>(IpcReply::nobody));
  const int network = in_child([] {
    const uint32_t before = network_namespace();
    if (unshare(CLONE_NEWNET) != 0) return kCannot;
    return before != network_namespace() ? 0 : 1;
  });
  CHECK((network == 0 || network == kCannot));
  end_exports_at(kChunk);
}

IpcToken token_of(const IpcProcess& process) {
  IpcToken token;
  REQUIRE(read_token(make_token(process, kChunk, 1000, 1), &token));
  return token;
}

IpcReply ask_for(uint64_t patience_ns, const IpcProcess& process) {
  IpcPatience patience{patience_ns};
  IpcAnswer answer;
  IpcFiles files;
  return ask_exporter(token_of(process), 0, &patience, &answer, &files);
}

TEST_CASE("a process that is no more is known at once, one that is silent in a while", "[ipc]") {
  constexpr uint64_t kForEver = uint64_t{1} << 60;
  const IpcProcess process = made_up_process();
  CHECK(ask_for(0, process) == IpcReply::nobody);  // without any wait

  OwnSocket silent;
  REQUIRE(silent.open_for(process));
  CHECK_FALSE(OwnSocket().open_for(process));
  CHECK(errno == EADDRINUSE);
  IpcAnswer answer;
  CHECK(ask(token_of(process), &answer) == IpcReply::silent);

  std::thread closes([&] {
    alloc::os::sleep_ns(
        300'000'000);  // the question is asked by then; if not, the answer is the same
    silent.close_own();
  });
  CHECK(ask_for(kForEver, process) == IpcReply::nobody);
  closes.join();
}

// Root would not be told from nobody.
TEST_CASE("who is silent is not taken for another user", "[ipc]") {
  const IpcProcess process = made_up_process();
  const IpcToken token = token_of(process);
  constexpr int kCannot = 99;
  const int reply = in_child([&] {
    if (getuid() == 0 && setuid(65'000) != 0) return kCannot;
    OwnSocket silent;
    if (!silent.open_for(process)) return kCannot;
    IpcPatience patience{300'000'000};
    IpcAnswer answer;
    IpcFiles files;
    return static_cast<int>(ask_exporter(token, 0, &patience, &answer, &files));
  });
  CHECK((reply == static_cast<int>(IpcReply::silent) || reply == kCannot));
}

// Who looked for it only before the question is asked once more would never have it sooner than
// that, however fast the machine. On a slow one, one of many answers is in time.
TEST_CASE("an answer is heard when it comes", "[ipc]") {
  constexpr uint64_t kAskedAgainNs = 100'000'000;
  hold(512, 2000);
  const IpcToken token = exported(10);
  REQUIRE(serve_importers(find_held));
  CHECK(comes_true([&] {
    IpcAnswer answer;
    const uint64_t begin = alloc::os::now_ns();
    return ask(token, &answer) == IpcReply::given &&
           alloc::os::now_ns() - begin < kAskedAgainNs / 2;
  }));
  end_exports_at(kChunk);
}

TEST_CASE("an exporter that sends anything first is heard when it answers", "[ipc]") {
  const IpcProcess process = made_up_process();
  OwnSocket socket;
  REQUIRE(socket.open_for(process));
  std::thread exporter([&] {
    IpcRequest request;
    IpcSender from;
    while (socket.receive(&request, sizeof request, &from) < 0) {
      alloc::os::sleep_ns(1'000'000);
    }
    const auto send = [&](const IpcAnswer& answer, size_t size) {
      socket.send_to(from.address, from.address_bytes, &answer, size);
    };
    IpcAnswer answer{kAnswerMagic,
                     kIpcVersion,
                     IpcStatus::given,
                     proof_of(process, request.number - 1),
                     {},
                     1,
                     1000,
                     0,
                     0};
    send(answer, sizeof answer);
    send(answer, 3);
    answer.proof = proof_of(process, request.number);
    answer.offset = 77;
    send(answer, sizeof answer);
  });
  IpcAnswer answer;
  CHECK(ask(token_of(process), &answer) == IpcReply::given);
  CHECK(answer.offset == 77);
  exporter.join();
  socket.close_own();
}

}  // namespace
}  // namespace cistern::shim
