// SPDX-License-Identifier: Apache-2.0
// Messages with damage, to both sides of an IPC token: whatever the bytes are, a side reads nothing
// beyond them and gives a handle, or descriptors, for the one block that is held, or none. Then the
// same through the socket, with descriptors sent along: the exporter still answers, and keeps
// nothing.
//
// ipc_fuzz [SEED [NUMBER]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/unit/shim/ipc_peers.h"

namespace {

using namespace cistern::shim;
using namespace cistern::test;
using Random = std::mt19937_64;

constexpr uint64_t kChunk = 0x7f0000000000;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "ipc_fuzz: %s\n", what);
  std::abort();
}

// On the heap and of just its size, so that the sanitizer sees a read beyond it.
template <typename T>
std::vector<unsigned char> damaged(const T& message, Random& random) {
  std::vector<unsigned char> bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  for (uint64_t n = random() % 4; n > 0; --n) {
    bytes[random() % bytes.size()] = static_cast<unsigned char>(random());
  }
  if (random() % 8 == 0) bytes.resize(random() % (2 * sizeof message));
  if (random() % 64 == 0) bytes.clear();
  return bytes;
}

// A token that is right in itself, of whatever block.
IpcToken any_token(const IpcToken& right, Random& random) {
  IpcToken token = right;
  const auto changed = [&](uint64_t value) {
    return random() % 3 != 0 ? value : random() >> (random() % 64);
  };
  (random() % 2 == 0 ? token.process.name : token.process.secret) = changed(token.process.secret);
  read_token(
      make_token(token.process, changed(token.address), changed(token.bytes), changed(token.chunk)),
      &token);
  return random() % 2 == 0 ? token : right;
}

// Whether a handle was given.
bool question(const IpcToken& right, Random& random) {
  IpcRequest request = on_line_for(any_token(right, random));
  const auto bytes = damaged(request, random);
  const uid_t user = random() % 4 == 0 ? static_cast<uid_t>(random()) : getuid();
  IpcFiles files;
  const IpcAnswer answer = answer_message(bytes.data(), bytes.size(), user, find_held, &files);
  const bool given = answer.magic == kAnswerMagic && answer.status == IpcStatus::given;
  const CUipcMemHandle none{};
  if (!given && std::memcmp(&answer.handle, &none, sizeof none) != 0) broken("a handle for nobody");
  if (!given && files.count() != 0) broken("descriptors for nobody");
  if (!given) return false;
  if (user != getuid()) broken("a handle for another user");
  if (held_block.in_units) {
    if (answer.units != held_units.units || answer.bytes != held_block.bytes) {
      broken("units of another block");
    }
    return true;
  }
  if (answer.offset != held_block.start - kChunk || answer.bytes != held_block.bytes) {
    broken("a handle of another block");
  }
  return true;
}

bool hear(const IpcToken& right, Random& random) {
  Question question = question_for(right);
  IpcAnswer answer = answered(question.on_line);
  if (random() % 2 == 0) answer.offset = random();
  if (random() % 4 == 0) answer.units = random() >> (random() % 64);
  if (random() % 4 == 0) answer.unit_bytes = uint64_t{1} << random() % 64;
  if (random() % 4 == 0) question.request.first = static_cast<uint32_t>(random() % 100);
  const auto bytes = damaged(answer, random);
  const auto files =
      static_cast<uint32_t>(random() % 4 == 0 ? random() % (kMostFiles + 1)
                                              : std::min<uint64_t>(answer.units, kMostFiles));
  IpcAnswer out;
  IpcReply reply{};
  if (!read_answer(bytes.data(), bytes.size(), question, files, &out, &reply)) return false;
  uint64_t all;
  if (reply == IpcReply::given &&
      (__builtin_mul_overflow(out.units, out.unit_bytes, &all) ||
       (out.units != 0 &&
        (out.offset + out.bytes > all || question.request.first + files > out.units)))) {
    broken("a block outside of its units");
  }
  if (reply == IpcReply::given &&
      (out.bytes != right.bytes || out.offset > UINT64_MAX - out.bytes)) {
    broken("a block outside of everything");
  }
  return reply == IpcReply::given;
}

void through_the_socket(const IpcToken& right, uint64_t count, Random& random) {
  if (!serve_importers(find_held)) broken("no socket");
  const long files = open_files();  // before the first line
  IpcAnswer answer;
  if (ask(right, &answer) != IpcReply::given) broken("no answer at first");
  for (uint64_t i = 0; i < count; ++i) {
    const auto bytes = damaged(request_for(any_token(right, random)), random);
    send_raw(right.process, bytes.data(), bytes.size(), random() % 2 == 0 ? STDERR_FILENO : -1);
    if (i % 100 == 0 && ask(right, &answer) != IpcReply::given) broken("no answer");
  }
  if (ask(right, &answer) != IpcReply::given) broken("no answer at last");
  if (!files_become(files)) broken("descriptors of peers are kept");
}

// Messages about the block that is held.
void try_all(const IpcToken& right, uint64_t count, Random& random) {
  uint64_t given = 0, heard = 0;
  for (uint64_t i = 0; i < count; ++i) {
    given += question(right, random);
    heard += hear(right, random);
  }
  if (count > 100 && (given == 0 || given == count || heard == 0 || heard == count)) {
    broken("the damage is of one kind only");
  }
  through_the_socket(right, count / 20, random);
  std::printf("%llu messages each way; %llu and %llu were right\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(given),
              static_cast<unsigned long long>(heard));
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 200'000;
  Random random(seed);
  std::printf("ipc_fuzz: seed %llu\n", static_cast<unsigned long long>(seed));
  hold({kChunk + 4096, 1000, kChunk, false});
  try_all(exported(1), count / 2, random);
  constexpr uint64_t kUnit = 2 << 20;
  hold_units({4096, kUnit, 3, nullptr});
  hold({kChunk + 4096, 3 * kUnit - 4096, kChunk + 4096, true});
  try_all(exported(0), count / 2, random);
  return 0;
}
