// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/token.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "shim/process/no_cancel.h"

namespace cistern::shim {
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

}  // namespace cistern::shim
