// SPDX-License-Identifier: Apache-2.0
// Blocks in units: their descriptors, and answers that lie about them.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "allocator/base/os.h"
#include "tests/catch.h"
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
using test::open_files;
using test::settled_files;

constexpr uint64_t kChunk = 0x7f0000000000;

// Holds a block that lies in so many units of 2 MiB.
void hold_in_units(uint64_t units) {
  constexpr uint64_t kUnit = 2 << 20, kOffset = 4096;
  test::hold_units({kOffset, kUnit, units, nullptr});
  test::hold({kChunk + kOffset, units * kUnit - kOffset, kChunk + kOffset, true});
}

TEST_CASE("descriptors of units come along, as many as a message takes", "[ipc]") {
  hold_in_units(150);
  const IpcToken token = exported(0);
  REQUIRE(serve_importers(find_held));
  const long files = settled_files();
  IpcPatience patience;
  for (const uint32_t first : {0U, 64U, 128U}) {
    IpcAnswer answer;
    IpcFiles came;
    REQUIRE(ask_exporter(token, first, &patience, &answer, &came) == IpcReply::given);
    CHECK(answer.units == 150);
    CHECK(answer.unit_bytes == 2 << 20);
    CHECK(answer.offset == 4096);
    CHECK(came.count() == (first == 128 ? 22 : 64));
    CHECK(files_become(files + came.count()));
    CHECK(fcntl(came.number(0), F_GETFD) == FD_CLOEXEC);
  }
  IpcAnswer answer;
  IpcFiles none;
  for (const uint32_t first : {150U, UINT32_MAX}) {
    CHECK(ask_exporter(token, first, &patience, &answer, &none) == IpcReply::gone);
  }
  test::let_units_be_had([] { return false; });
  CHECK(ask_exporter(token, 0, &patience, &answer, &none) == IpcReply::unable);
  CHECK(none.count() == 0);
  CHECK(files_become(files));
  end_exports_in(token.address, 1);
  CHECK(ask(token, &answer) == IpcReply::gone);
}

TEST_CASE("a block in units has its number until memory goes from behind its start", "[ipc]") {
  hold_in_units(2);
  const IpcToken token = exported(0);
  const IpcRequest request = on_line_for(token);
  CHECK(exported(0).chunk == token.chunk);
  end_exports_in(token.address + 1, 1000);
  end_exports_in(token.address - 1000, 1000);
  CHECK(answered(request).status == IpcStatus::given);
  // Another block comes there while the descriptors are had.
  test::let_units_be_had([&] {
    end_exports_in(token.address - 4096, 4097);
    exported(0);
    return true;
  });
  IpcFiles files;
  const IpcAnswer answer = answer_message(&request, sizeof request, getuid(), find_held, &files);
  CHECK(answer.status == IpcStatus::gone);
  CHECK(answer.unit_bytes == 0);
  CHECK(files.count() == 0);
  end_exports_in(token.address, 1);
}

TEST_CASE("who may not have units gets no descriptor", "[ipc]") {
  hold_in_units(3);
  const IpcRequest right = on_line_for(exported(0));
  const auto files_for = [](const IpcRequest& request, uid_t user) {
    IpcFiles files;
    answer_message(&request, sizeof request, user, find_held, &files);
    return files.count();
  };
  CHECK(files_for(right, getuid()) == 3);
  CHECK(files_for(right, getuid() + 1) == 0);
  IpcRequest other = right;
  other.token.chunk += 1;
  CHECK(files_for(other, getuid()) == 0);
  end_exports_in(right.token.address, 1);
  CHECK(files_for(right, getuid()) == 0);
}

TEST_CASE("units count if the block lies in them and each has its descriptor", "[ipc]") {
  constexpr uint64_t kUnit = 2 << 20;
  hold_in_units(3);
  const Question question = test::question_for(exported(0));
  const IpcRequest& request = question.on_line;
  const IpcAnswer right = answered(request);
  IpcAnswer out;
  IpcReply reply;
  const auto replied = [&](const IpcAnswer& answer, uint32_t files, uint32_t first = 0) {
    Question asked = question;
    asked.request.first = first;
    CHECK(read_answer(&answer, sizeof answer, asked, files, &out, &reply));
    return reply;
  };
  CHECK(replied(right, 3) == IpcReply::given);
  CHECK(replied(right, 1, 2) == IpcReply::given);
  for (const uint32_t files : {0U, 2U, 4U, 64U}) CHECK(replied(right, files) == IpcReply::gone);
  CHECK(replied(right, 0, 3) == IpcReply::gone);
  const auto changed = [&](auto change) {
    IpcAnswer answer = right;
    change(&answer);
    const auto files = static_cast<uint32_t>(std::min<uint64_t>(answer.units, kMostFiles));
    return replied(answer, files);
  };
  CHECK(changed([](IpcAnswer* a) { a->units = 2; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->units = 4; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->units = 0; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->unit_bytes = kUnit - 1; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->unit_bytes = 0; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->offset += kUnit, a->units += 1; }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) {
          a->unit_bytes = uint64_t{1} << 63;
          a->units = 1;
        }) == IpcReply::gone);
  CHECK(changed([](IpcAnswer* a) { a->status = IpcStatus::unable; }) == IpcReply::unable);
  CHECK(changed([](IpcAnswer* a) { a->status = IpcStatus::come; }) == IpcReply::gone);
  IpcAnswer in_chunk = right;
  in_chunk.unit_bytes = in_chunk.units = 0;
  CHECK(replied(in_chunk, 0) == IpcReply::given);
  CHECK(replied(in_chunk, 1) == IpcReply::gone);
  end_exports_in(request.token.address, 1);
}

TEST_CASE("a child that is forked while units are sent has none of them", "[ipc]") {
  hold_in_units(5);
  const IpcToken token = exported(0);
  REQUIRE(serve_importers(find_held));
  const long files = settled_files();
  std::atomic<bool> had{false}, forked{false};
  test::hold_units({4096, 2 << 20, 5, nullptr, [&] {
                      had = true;
                      while (!forked) usleep(1000);
                    }});
  std::thread importer([&] {
    IpcAnswer answer;
    ask(token, &answer);
  });
  while (!had) usleep(1000);
  const long sent = open_files() - files;
  const pid_t child = fork();
  if (child == 0) {
    reset_service_after_fork();
    _exit(static_cast<int>(files - open_files()));
  }
  forked = true;
  importer.join();
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(sent == 5 + 2);             // the importer's socket, and its line
  CHECK(WEXITSTATUS(status) == 1);  // the service's socket, too
  CHECK(files_become(files));
  hold_in_units(0);
  end_exports_in(token.address, 1);
}

TEST_CASE("a child that is forked while units are in an importer's hand has none", "[ipc]") {
  hold_in_units(5);
  const IpcToken token = exported(0);
  REQUIRE(serve_importers(find_held));
  const long files = settled_files();
  IpcAnswer answer;
  IpcFiles came;
  IpcPatience patience;
  REQUIRE(ask_exporter(token, 0, &patience, &answer, &came) == IpcReply::given);
  REQUIRE(came.count() == 5);
  REQUIRE(files_become(files + 5));
  const pid_t child = fork();
  if (child == 0) {
    reset_service_after_fork();
    _exit(static_cast<int>(files - open_files()));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 1);  // the service's socket
  CHECK(open_files() == files + 5);
  end_exports_in(token.address, 1);
}

// Answers each request as `answer` says, with so many descriptors.
class Liar {
 public:
  Liar(const IpcAnswer& answer, uint32_t files) : answer_(answer), files_(files) {
    REQUIRE(socket_.open_for(process_));
    thread_ = std::thread([this] { lie(); });
  }
  ~Liar() {
    stop_ = true;
    thread_.join();
    socket_.close_own();
  }
  Liar(const Liar&) = delete;
  Liar& operator=(const Liar&) = delete;

  IpcReply reply(IpcFiles* files) const {
    IpcToken token;
    REQUIRE(read_token(make_token(process_, kChunk, answer_.bytes, 1), &token));
    IpcAnswer answer;
    IpcPatience patience;
    return ask_exporter(token, 0, &patience, &answer, files);
  }

 private:
  void lie() {
    while (!stop_) {
      IpcRequest request;
      IpcSender from;
      if (socket_.receive(&request, sizeof request, &from) < 0) {
        alloc::os::sleep_ns(200'000);
        continue;
      }
      answer_.proof = proof_of(process_, request.number);
      send(from.address, from.address_bytes);
    }
  }
  // More than IpcFiles has.
  void send(const sockaddr_un& to, socklen_t to_bytes) {
    constexpr size_t kMost = 253;
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(kMost * sizeof(int))] = {};
    sockaddr_un address = to;
    iovec part{&answer_, sizeof answer_};
    msghdr head{};
    head.msg_name = &address;
    head.msg_namelen = to_bytes;
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    if (files_ != 0) {
      head.msg_control = control;
      head.msg_controllen = CMSG_SPACE(files_ * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&head);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(files_ * sizeof(int));
      const int file = STDERR_FILENO;
      for (uint32_t i = 0; i < files_; ++i) {
        std::memcpy(CMSG_DATA(rights) + i * sizeof file, &file, sizeof file);
      }
    }
    sendmsg(socket_.number(), &head, MSG_NOSIGNAL);
  }

  const IpcProcess process_ = test::made_up_process();
  OwnSocket socket_;
  IpcAnswer answer_;
  uint32_t files_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_CASE("descriptors that do not belong to an answer are closed", "[ipc]") {
  constexpr uint64_t kUnit = 2 << 20;
  const long files = settled_files();
  const auto reply = [&](uint64_t units, uint32_t sent) {
    const IpcAnswer answer{kAnswerMagic, kIpcVersion, IpcStatus::given, 0, {}, 0, units * kUnit,
                           kUnit,        units};
    const Liar liar(answer, sent);
    const long with_liar = open_files();
    IpcFiles came;
    const IpcReply told = liar.reply(&came);
    CHECK(came.count() == (told == IpcReply::given ? sent : 0));
    CHECK(files_become(with_liar + came.count()));
    return told;
  };
  CHECK(reply(5, 5) == IpcReply::given);
  CHECK(reply(5, 4) == IpcReply::gone);
  CHECK(reply(5, 0) == IpcReply::gone);
  CHECK(reply(5, 64) == IpcReply::gone);
  CHECK(reply(64, 65) == IpcReply::failed);
  CHECK(reply(100, 253) == IpcReply::failed);
  CHECK(files_become(files));
}

}  // namespace
}  // namespace cistern::shim
