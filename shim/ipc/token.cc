// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/token.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

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
  return getrandom(out->key, sizeof out->key, GRND_NONBLOCK) == sizeof out->key;
}

uint32_t network_namespace() {
  struct stat name;
  return stat("/proc/self/ns/net", &name) == 0 ? static_cast<uint32_t>(name.st_ino) : 0;
}

}  // namespace cistern::shim
