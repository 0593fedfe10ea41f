// SPDX-License-Identifier: Apache-2.0
// Blocks of another process on a driver that, as CUDA's does, maps a chunk once for each context
// and counts who opened it. The other process is a thread with a socket and a secret of its own.
#include "shim/kinds/imported.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/base/os.h"
#include "shim/order/contexts/context.h"
#include "shim/order/ties.h"
#include "shim/pooled/memory.h"
#include "shim/pooled/out_of_memory.h"
#include "tests/catch.h"
#include "tests/unit/shim/fake_shim.h"
#include "tests/unit/shim/ipc_peers.h"

namespace cistern::shim {

// Of this process there are no tokens, and its context is well.
bool own_handle(const CUipcMemHandle&, CUipcMemHandle*, bool*) { return false; }
uint64_t devices_reaching(uint32_t owner) { return owner == 0 ? test::devices_reaching : 0; }
Context* working_context(CUcontext) {
  alignas(Context) static unsigned char only[sizeof(Context)] = {};
  return test::context_is_known ? reinterpret_cast<Context*>(only) : nullptr;
}
CUresult refusal_here() { return CUDA_SUCCESS; }
bool release_for_once_more() { return test::fakes().release_idle && test::fakes().release_idle(0); }

namespace {

using test::fakes;

constexpr uint64_t kChunkBytes = 2 << 20;

struct CountingDriver {
  std::mutex mutex;
  std::map<CUdeviceptr, int> users;  // of the addresses that are mapped
  std::atomic<int> opens{0};
  std::atomic<CUresult> close_result{CUDA_SUCCESS};
  unsigned long long context_number = 1;
  std::function<void()> after_close;  // before the call returns
  std::function<void()> after_open;
  bool one_place = false;     // for all chunks
  std::atomic<int> waits{0};  // for contexts
  CUresult wait_result = CUDA_SUCCESS;

  int mapped() {
    const std::lock_guard guard(mutex);
    return static_cast<int>(users.size());
  }
};

CountingDriver& device() {
  static CountingDriver the_device;
  return the_device;
}

// Each chunk has its place, as its handle tells.
CUdeviceptr place_of(const CUipcMemHandle& handle) {
  if (device().one_place) return 0x700000000000;
  return 0x700000000000 + static_cast<CUdeviceptr>(handle.reserved[0]) * 16 * kChunkBytes;
}

constexpr unsigned kFlag = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

CUresult open_handle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  IpcToken token;
  if (flags != kFlag || read_token(handle, &token)) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard guard(device().mutex);
    ++device().opens;
    *out = place_of(handle);
    ++device().users[*out];
  }
  if (const auto then = std::exchange(device().after_open, nullptr)) then();
  return CUDA_SUCCESS;
}

CUresult close_mapped(CUdeviceptr address) {
  const std::lock_guard guard(device().mutex);
  if (device().close_result != CUDA_SUCCESS) return device().close_result;
  const auto found = device().users.find(address);
  if (found == device().users.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second == 0) device().users.erase(found);
  return CUDA_SUCCESS;
}

CUresult close_handle(CUdeviceptr address) {
  const CUresult result = close_mapped(address);
  if (const auto then = std::exchange(device().after_close, nullptr)) then();
  return result;
}

CUresult range_of(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const std::lock_guard guard(device().mutex);
  const auto found = device().users.upper_bound(address);
  if (found == device().users.begin()) return CUDA_ERROR_NOT_FOUND;
  const CUdeviceptr start = std::prev(found)->first;
  if (address - start >= kChunkBytes) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (bytes != nullptr) *bytes = kChunkBytes;
  return CUDA_SUCCESS;
}

void begin() {
  test::reset_fakes();
  CountingDriver& d = device();
  const std::lock_guard guard(d.mutex);
  d.users.clear();
  d.opens = 0;
  d.after_open = nullptr;
  d.close_result = CUDA_SUCCESS;
  d.after_close = nullptr;
  d.one_place = false;
  d.waits = 0;
  d.wait_result = CUDA_SUCCESS;
  ++d.context_number;
  fakes().current = reinterpret_cast<CUcontext>(0x10);
  fakes().driver.cuIpcCloseMemHandle = close_handle;
  fakes().driver.cuMemGetAddressRange_v2 = range_of;
  fakes().driver.cuCtxSynchronize = [] {
    ++device().waits;
    return device().wait_result;
  };
  fakes().driver.cuCtxGetId = [](CUcontext, unsigned long long* out) {
    *out = device().context_number;
    return CUDA_SUCCESS;
  };
}

// Answers for a block that begins at `address` in the chunk whose handle has the token's number.
class Exporter {
 public:
  Exporter() {
    REQUIRE(describe_ipc_process(&process_));
    REQUIRE(socket_.open_for(process_));
    thread_ = std::thread([this] { serve(); });
  }
  ~Exporter() {
    stop_ = true;
    thread_.join();
    socket_.close_own();
  }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  CUipcMemHandle token(uint64_t offset, uint64_t bytes, uint64_t chunk = 1) const {
    return make_token(process_, offset, bytes, chunk);
  }

 private:
  void serve() {
    while (!stop_) {
      IpcRequest request;
      IpcSender from;
      if (socket_.receive(&request, sizeof request, &from) < 0) {
        alloc::os::sleep_ns(200'000);
        continue;
      }
      const uint64_t proof = proof_of(process_, request.number);
      IpcAnswer answer{kAnswerMagic, kIpcVersion, IpcStatus::given, proof, {}, 0, 0, 0, 0};
      answer.handle = test::handle_of_driver(static_cast<unsigned char>(request.token.chunk));
      answer.offset = request.token.address;
      answer.bytes = request.token.bytes;
      socket_.send_to(from.address, from.address_bytes, &answer, sizeof answer);
    }
  }

  IpcProcess process_;
  OwnSocket socket_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

CUdeviceptr open(const CUipcMemHandle& token) {
  CUdeviceptr address = 0;
  CHECK(open_imported(open_handle, &address, token, kFlag) == CUDA_SUCCESS);
  return address;
}

uint64_t bytes_at(CUdeviceptr address) {
  uint64_t start = 0, bytes = 0;
  return find_imported(address, &start, &bytes) && start <= address ? bytes : 0;
}

TEST_CASE("a chunk is opened once, and closed with the last of its blocks", "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr first = open(exporter.token(512, 1000));
  const CUdeviceptr again = open(exporter.token(512, 1000));
  const CUdeviceptr second = open(exporter.token(4096, 3000));
  CHECK(first == again);
  CHECK(second - first == 4096 - 512);
  CHECK(device().opens == 1);
  CHECK(bytes_at(first + 999) == 1000);
  CHECK(bytes_at(first + 1000) == 0);
  CHECK(bytes_at(second) == 3000);
  CHECK(close_imported(first) == CUDA_SUCCESS);
  CHECK(bytes_at(first) == 1000);
  CHECK(close_imported(second) == CUDA_SUCCESS);
  CHECK(bytes_at(second) == 0);
  CHECK(close_imported(second) == CUDA_ERROR_INVALID_VALUE);
  CHECK(close_imported(first - 512) == CUDA_ERROR_INVALID_VALUE);
  CHECK(device().mapped() == 1);
  CHECK(close_imported(first) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
  CHECK(bytes_at(first) == 0);
}

TEST_CASE("the driver refuses other flags, also of what is open", "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr block = open(exporter.token(512, 1000));
  for (const unsigned flags : {0u, 2u, 3u}) {
    CUdeviceptr address = 0;
    CHECK(open_imported(open_handle, &address, exporter.token(512, 1000), flags) ==
          CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(device().opens == 1);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

TEST_CASE("a block that does not lie in what was opened is refused", "[ipc]") {
  begin();
  const Exporter exporter;
  CUdeviceptr address = 0;
  const auto refused = [&](uint64_t offset, uint64_t bytes) {
    return open_imported(open_handle, &address, exporter.token(offset, bytes), kFlag) ==
           CUDA_ERROR_INVALID_VALUE;
  };
  CHECK(refused(kChunkBytes, 1));
  CHECK(refused(kChunkBytes - 10, 11));
  CHECK(refused(UINT64_MAX - 5, 3));
  CHECK(device().mapped() == 0);
  CHECK(close_imported(open(exporter.token(kChunkBytes - 10, 10))) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

TEST_CASE("what the driver refuses to close stays open", "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr block = open(exporter.token(512, 1000));
  device().close_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK(close_imported(block) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(bytes_at(block) == 1000);
  device().close_result = CUDA_SUCCESS;
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(bytes_at(block) == 0);
}

// Once, without having closed anything.
void let_one_close_fail() {
  device().close_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  device().after_close = [] { device().close_result = CUDA_SUCCESS; };
}

TEST_CASE("what was opened beside a mapping, and the driver would not close, is closed with it",
          "[ipc]") {
  begin();
  const Exporter exporter;
  CUdeviceptr block = 0;
  device().after_open = [&] {  // another thread opens it meanwhile
    block = open(exporter.token(512, 1000));
    let_one_close_fail();
  };
  const CUdeviceptr opened = open(exporter.token(512, 1000));
  CHECK(opened == block);
  CHECK(device().opens == 2);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(bytes_at(block) == 1000);
  CHECK(device().mapped() == 1);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

TEST_CASE("what the driver closed and told of earlier work at is opened anew", "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr block = open(exporter.token(512, 1000));
  fakes().driver.cuIpcCloseMemHandle = [](CUdeviceptr address) {
    close_mapped(address);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  CHECK(close_imported(block) == CUDA_ERROR_ILLEGAL_ADDRESS);
  fakes().driver.cuIpcCloseMemHandle = close_handle;
  CHECK(close_imported(block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(bytes_at(block) == 0);
  CHECK(open(exporter.token(512, 1000)) == block);
  CHECK(device().opens == 2);
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

TEST_CASE("what was opened in vain is closed, if the driver would not at first", "[ipc]") {
  begin();
  const Exporter exporter;
  CUdeviceptr address = 0;
  let_one_close_fail();
  CHECK(open_imported(open_handle, &address, exporter.token(kChunkBytes, 1), kFlag) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(device().mapped() == 0);
}

TEST_CASE("a block is closed when its context has worked, whoever else is open in the chunk",
          "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr block = open(exporter.token(512, 1000));
  const CUdeviceptr other = open(exporter.token(4096, 10));
  open(exporter.token(512, 1000));
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(device().waits == 0);  // it is open once more
  device().wait_result = CUDA_ERROR_ILLEGAL_ADDRESS;
  CHECK(close_imported(block) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(bytes_at(block) == 1000);
  device().wait_result = CUDA_SUCCESS;
  CHECK(close_imported(block) == CUDA_SUCCESS);
  CHECK(device().waits == 2);
  CHECK(bytes_at(block) == 0);
  CHECK(close_imported(other) == CUDA_SUCCESS);
  CHECK(device().waits == 2);  // the driver does
  CHECK(device().mapped() == 0);
}

TEST_CASE("a chunk that is opened where another one is just closed is its own", "[ipc]") {
  begin();
  device().one_place = true;
  const Exporter exporter;
  const CUdeviceptr first = open(exporter.token(512, 1000));
  CUdeviceptr second = 0;
  device().after_close = [&] { second = open(exporter.token(512, 2000, 2)); };
  CHECK(close_imported(first) == CUDA_SUCCESS);
  CHECK(second == first);
  CHECK(bytes_at(second) == 2000);
  CHECK(close_imported(second) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

// Another thread opens it while it is opened here, and closes it before it is closed here.
TEST_CASE("who finds a chunk just opened, and closed again, at each turn gives up in the end",
          "[ipc]") {
  constexpr int kManyTurns = 100;
  begin();
  const Exporter exporter;
  static CUipcMemHandle token;
  static CUdeviceptr others;
  static bool others_turn;
  static int turns;
  token = exporter.token(512, 1000);
  others = 0;
  others_turn = false;
  turns = 0;
  fakes().driver.cuMemGetAddressRange_v2 = [](CUdeviceptr* base, size_t* bytes,
                                              CUdeviceptr address) {
    if (!std::exchange(others_turn, true)) {
      if (++turns < kManyTurns) others = open(token);
      others_turn = false;
    }
    return range_of(base, bytes, address);
  };
  fakes().driver.cuIpcCloseMemHandle = [](CUdeviceptr address) {
    if (others != 0) CHECK(close_imported(std::exchange(others, 0)) == CUDA_SUCCESS);
    return close_mapped(address);
  };
  CUdeviceptr block = 0;
  CHECK(open_imported(open_handle, &block, token, kFlag) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(turns < kManyTurns);
  CHECK(device().mapped() == 0);
}

TEST_CASE("a context takes its mappings along, seen or unseen", "[ipc]") {
  begin();
  const Exporter exporter;
  const CUdeviceptr block = open(exporter.token(512, 1000));
  imports_of_context_gone(reinterpret_cast<CUcontext>(0x20));
  CHECK(bytes_at(block) == 1000);
  imports_of_context_gone(fakes().current);
  CHECK(bytes_at(block) == 0);
  // The driver has taken the chunk away, and somebody may have its addresses by now.
  static int unmapped;
  unmapped = 0;
  fakes().driver.cuMemUnmap = [](CUdeviceptr, size_t) {
    ++unmapped;
    return CUDA_SUCCESS;
  };
  fakes().driver.cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  unmap_imports_of_gone();
  CHECK(unmapped == 0);

  open(exporter.token(512, 1000));
  begin();  // another context with the same handle
  open(exporter.token(4096, 10));
  CHECK(device().opens == 1);
  CHECK(bytes_at(block) == 0);
  CHECK(close_imported(block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(close_imported(block + 4096 - 512) == CUDA_SUCCESS);
  CHECK(device().mapped() == 0);
}

TEST_CASE("why a block cannot be had is said once, and of the network if that is another",
          "[ipc]") {
  begin();
  IpcProcess process;
  REQUIRE(describe_ipc_process(&process));
  process.network += 1;
  const CUipcMemHandle token = make_token(process, 512, 1000, 1);
  CUdeviceptr address = 0;
  const auto opened = [&] { return open_imported(open_handle, &address, token, kFlag); };
  CHECK(opened() == CUDA_ERROR_INVALID_VALUE);
  CHECK(fakes().logged.find("another network namespace") != std::string::npos);
  fakes().logged.clear();
  CHECK(opened() == CUDA_ERROR_INVALID_VALUE);
  CHECK(fakes().logged.empty());
}

TEST_CASE("a block that was freed is no partner that is missing", "[ipc]") {
  begin();
  const uint64_t before = imports_unanswered();
  CUdeviceptr address = 0;
  {
    const Exporter exporter;
    const CUipcMemHandle token = exporter.token(0, 0);
    CHECK(open_imported(open_handle, &address, token, kFlag) == CUDA_ERROR_INVALID_VALUE);
    CHECK(imports_unanswered() == before);
  }
  IpcProcess process;
  REQUIRE(describe_ipc_process(&process));
  const CUipcMemHandle token = make_token(process, 512, 1000, 1);
  CHECK(open_imported(open_handle, &address, token, kFlag) == CUDA_ERROR_INVALID_VALUE);
  CHECK(imports_unanswered() == before + 1);
}

TEST_CASE("threads that open and close the same blocks leave nothing open", "[ipc]") {
  begin();
  const Exporter exporter;
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const uint64_t offset = 512 * static_cast<uint64_t>((i + t) % 3);
        const CUipcMemHandle token = exporter.token(offset, 100, 1 + static_cast<uint64_t>(i % 2));
        CUdeviceptr address = 0, base = 0;
        size_t bytes = 0;
        wrong += open_imported(open_handle, &address, token, kFlag) != 0;
        wrong += range_of(&base, &bytes, address) != CUDA_SUCCESS || address - base != offset;
        wrong += bytes_at(address + 99) != 100;
        wrong += close_imported(address) != CUDA_SUCCESS;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(device().mapped() == 0);
}

}  // namespace
}  // namespace cistern::shim
