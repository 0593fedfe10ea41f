// SPDX-License-Identifier: Apache-2.0
// Exporters of units that contradict themselves, answer late, or send descriptors of anything.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "allocator/base/os.h"
#include "shim/kinds/imported.h"
#include "tests/catch.h"
#include "tests/unit/shim/unit_imports.h"

namespace cistern::shim {
namespace {

using namespace units_test;  // NOLINT(google-build-using-namespace): written for this file

TEST_CASE("an exporter whose answers contradict each other is not believed", "[ipc]") {
  {
    const Import serves(1);  // from now on
  }
  const long files = open_files();
  for (const bool other_offset : {false, true}) {
    const Import import(2 * kMostFiles);
    static std::atomic<int> asked;  // also by what was asked once more, and is answered later
    asked = 0;
    {
      const std::lock_guard guard(test::held_mutex);
      test::held_units.in_hand = [other_offset] {  // in the next answer
        test::HeldUnits& told = test::held_units;
        if (++asked > 1) return;
        if (other_offset) {
          told.offset -= 512;
        } else {
          told.unit_bytes /= 2;
          told.units *= 2;
        }
      };
    }
    CUdeviceptr block = 0;
    CHECK(import.open(&block) == CUDA_ERROR_INVALID_VALUE);
    CHECK(asked >= 2);
    CHECK(memory->empty());
  }
  CHECK(files_become(files));
}

TEST_CASE("what came late in many answers ends an opening like what came never", "[ipc]") {
  constexpr uint64_t kLate = 100'000'000, kMessages = 20;
  const Import import(kMessages * kMostFiles);
  const long open_before = open_files();
  static std::atomic<int> asked{0};
  test::let_units_be_had([] {
    ++asked;
    alloc::os::sleep_ns(kLate);
    return true;
  });
  IpcPatience patience{3 * kLate};
  IpcAnswer answer;
  IpcFiles files;
  REQUIRE(ask_exporter(import.token(), 0, &patience, &answer, &files) == IpcReply::given);
  MappedUnits units;
  IpcReply reply = IpcReply::given;
  CHECK(map_units(import.token(), answer, &files, &patience, &units, &reply) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(reply == IpcReply::silent);
  CHECK(asked < 8);
  CHECK(patience.left_ns < kLate);
  CHECK(files.count() == 0);
  CHECK(memory->empty());
  // What was asked again meanwhile is answered before this.
  test::let_units_be_had(nullptr);
  IpcPatience enough;
  CHECK(ask_exporter(import.token(), 0, &enough, &answer, &files) == IpcReply::given);
  files.close_all();
  CHECK(files_become(open_before));
}

// None of them is read, which could take for ever.
TEST_CASE("descriptors of anything go to the driver, and are closed", "[ipc]") {
  {
    const Import serves(1);  // from now on
  }
  int ends[2], sockets[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  const int memory_file = memfd_create("no allocation", MFD_CLOEXEC);
  const int folder = open("/proc/self", O_RDONLY | O_CLOEXEC);
  const long files = open_files();
  for (const int file : {ends[0], ends[1], sockets[0], memory_file, folder}) {
    const Import import(3);
    test::let_units_be(file);
    fakes().driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle*, void*,
                                                       CUmemAllocationHandleType) {
      memory->use("import");
      return CUDA_ERROR_INVALID_VALUE;
    };
    CUdeviceptr block = 0;
    CHECK(import.open(&block) == CUDA_ERROR_INVALID_VALUE);
    CHECK(memory->calls["import"] == 1);
    CHECK(memory->empty());
  }
  CHECK(files_become(files));
  for (const int file : {ends[0], ends[1], sockets[0], sockets[1], memory_file, folder}) {
    close(file);
  }
}

}  // namespace
}  // namespace cistern::shim
