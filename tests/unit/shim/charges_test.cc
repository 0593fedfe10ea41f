// SPDX-License-Identifier: Apache-2.0
// What the program holds beside the pools: charged before the driver is asked, as far as the cap
// has room, and given back when the driver refuses.
#include "shim/kinds/charges.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/unit/shim/charged_device.h"

using namespace cistern::shim;
using namespace cistern::test;
using namespace cistern::test::charged_device;

TEST_CASE("charges are kept where a cap is set or a report is wanted") {
  reset_fakes();
  auto policy = cistern::config::default_policy();
  open_charges(policy);
  CHECK_FALSE(charging());
  SECTION("a cap") { policy.gpu_memory_limit_mb = {100, true}; }
  SECTION("the cap of one device") {
    policy.gpu_limit_of[3] = {{cistern::config::CapKind::kPercent, 0, 50}, true};
  }
  SECTION("a report") { policy.report = {cistern::config::ReportFormat::kJson, true}; }
  open_charges(policy);
  CHECK(charging());
  fakes().driver.complete = false;
  CHECK_FALSE(charging());
  fakes().driver.complete = true;
  fakes().active = false;
  CHECK_FALSE(charging());
  charges_wanted = false;
}

TEST_CASE("known devices end with the highest one, up to the last that can be") {
  reset_fakes();
  fakes().driver.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice) {
    *bytes = kDeviceBytes;
    return CUDA_SUCCESS;
  };
  CHECK(known_device(kMaxDevices) == nullptr);
  CHECK(known_device(kMaxDevices - 1) != nullptr);
  CHECK(known_devices_end() == kMaxDevices);
  CHECK(known_device(0) != nullptr);
  CHECK(known_devices_end() == kMaxDevices);
}

TEST_CASE("a charge is taken back unless the driver granted the memory") {
  Charges device;
  {
    Charge charge(MemoryKind::direct, 0, 5 * kMiB);
    CHECK(charge.made());
    CHECK_FALSE(charge.refused());
    CHECK(device->cap.charged() == 3 * kPage);
    CHECK(taken(*device, MemoryKind::direct) == 0);  // nothing is held yet
  }
  CHECK(device->cap.charged() == 0);
}

TEST_CASE("a kept charge ends with the free that the driver accepts") {
  Charges device;
  REQUIRE(allocate(100, 5 * kMiB));
  REQUIRE(allocate(200, 2 * kMiB));
  CHECK(device->cap.charged() == 4 * kPage);
  CHECK(taken(*device, MemoryKind::direct) == 7 * kMiB);
  CHECK(device->used.load());
  CHECK(free_it(300) == CUDA_SUCCESS);  // not known: the driver's alone
  CHECK(free_it(100, CUDA_ERROR_INVALID_VALUE) == CUDA_ERROR_INVALID_VALUE);
  CHECK(device->cap.charged() == 4 * kPage);
  CHECK(free_it(100) == CUDA_SUCCESS);
  CHECK(device->cap.charged() == kPage);
  CHECK(taken(*device, MemoryKind::direct) == 2 * kMiB);
  CHECK(free_it(100) == CUDA_SUCCESS);  // once
  CHECK(device->cap.charged() == kPage);
  free_it(200);
  CHECK(device->ledger.taken_peak[static_cast<int>(MemoryKind::direct)].get() >= 7 * kMiB);
}

TEST_CASE("a charge of no bytes, or on no device, is none") {
  Charges device;
  const CUdevice ordinal = GENERATE(0, 1, kNoDevice, kMaxDevices);
  Charge charge(MemoryKind::array, ordinal, ordinal == 0 ? 0 : kMiB);
  CHECK_FALSE(charge.made());
  CHECK_FALSE(charge.refused());
  CHECK(charge.resize(kDeviceBytes * 2));
  charge.keep(100, nullptr);
  CHECK(take_charge(100) == nullptr);
}

TEST_CASE("each kind weighs what the driver would take for it") {
  struct Row {
    MemoryKind kind;
    uint64_t bytes, charged;
  };
  const Row rows[] = {
      {MemoryKind::direct, 1, kPage},
      {MemoryKind::direct, kPage, kPage},
      {MemoryKind::direct, kPage + 1, 2 * kPage},
      {MemoryKind::array, 3 * kMiB, 2 * kPage},
      {MemoryKind::physical, kPage, kPage},
      {MemoryKind::stream_ordered, kMiB + 1, kPage},
      {MemoryKind::managed, 512 * kMiB, 0},  // no cap holds for it
  };
  Charges device;
  for (const Row& row : rows) {
    REQUIRE(allocate(100, row.bytes, nullptr, row.kind));
    CHECK(device->cap.charged() == row.charged);
    CHECK(taken(*device, row.kind) == row.bytes);
    free_it(100);
  }
  // A memory pool lays its blocks side by side: two of 1.5 pages take three.
  for (const MemoryKind kind : {MemoryKind::stream_ordered, MemoryKind::direct}) {
    REQUIRE(allocate(kPage, 3 * kMiB, nullptr, kind));
    REQUIRE(allocate(kPage + 3 * kMiB, 3 * kMiB, nullptr, kind));
    CHECK(device->cap.charged() == (kind == MemoryKind::direct ? 4 : 3) * kPage);
    free_it(kPage);
    free_it(kPage + 3 * kMiB);
  }
  // So does the driver itself with linear memory of less than 1 MiB.
  constexpr uint64_t kSmall = 700 * 1024;
  REQUIRE(allocate(kPage, kSmall));
  REQUIRE(allocate(kPage + kSmall, kSmall));
  CHECK(device->cap.charged() == kPage);
  REQUIRE(allocate(3 * kPage, kSmall));
  CHECK(device->cap.charged() == 2 * kPage);
  for (const uint64_t address : {kPage, kPage + kSmall, 3 * kPage}) free_it(address);
  CHECK(device->cap.charged() == 0);
}

TEST_CASE("where stream-ordered memory lies decides whether a full cap has room for it") {
  constexpr MemoryKind kKind = MemoryKind::stream_ordered;
  Charges device(10 * kMiB);
  REQUIRE(allocate(kPage, 9 * kMiB, nullptr, kKind));
  CHECK(device->cap.charged() == 10 * kMiB);
  const uint64_t refused = device->ledger.refused_by_cap.get();
  CHECK_FALSE(allocate(8 * kPage, 4 * kMiB, nullptr, kKind));  // at least one page of its own
  CHECK_FALSE(allocate(8 * kPage, 512, nullptr, kKind));       // as it turns out
  CHECK(device->ledger.refused_by_cap.get() == refused + 2);
  CHECK(device->cap.charged() == 10 * kMiB);
  CHECK(allocate(kPage + 9 * kMiB, kMiB, nullptr, kKind));
  free_it(kPage);
  CHECK(device->cap.charged() == kPage);  // the other block's
  free_it(kPage + 9 * kMiB);
}

TEST_CASE("idle memory makes room for stream-ordered memory once it is known where it lies") {
  Charges device(4 * kMiB);
  REQUIRE(device->cap.charge(uint64_t{4} * kMiB));  // by a pool
  fakes().release_idle = [](CUdevice) {
    device_state(0).cap.refund(uint64_t{4} * kMiB);
    return true;
  };
  CHECK(allocate(kPage, 512, nullptr, MemoryKind::stream_ordered));
  CHECK(fakes().releases == 1);
  free_it(kPage);
}

TEST_CASE("a block that may not fit keeps no room from others while the driver is asked") {
  Charges device;
  REQUIRE(allocate(1, 58 * kMiB));
  {
    Charge sure(MemoryKind::stream_ordered, 0, 3 * kMiB);
    CHECK(device->cap.charged() == 58 * kMiB);  // wherever it lies it may share both of its pages
    Charge unsure(MemoryKind::stream_ordered, 0, 6 * kMiB);
    CHECK_FALSE(unsure.refused());
    CHECK(device->cap.charged() == 58 * kMiB);
    CHECK(allocate(2 * kPage, 6 * kMiB, nullptr, MemoryKind::stream_ordered));
    CHECK_FALSE(unsure.place(10 * kPage));
    CHECK_FALSE(sure.place(20 * kPage));
  }
  CHECK(device->cap.charged() == 64 * kMiB);
  CHECK(free_it(2 * kPage) == CUDA_SUCCESS);
  Charge roomy(MemoryKind::stream_ordered, 0, 4 * kMiB);
  CHECK(device->cap.charged() == 58 * kMiB + kPage);
  CHECK(free_it(1) == CUDA_SUCCESS);
}

TEST_CASE("placed memory without a record is not charged") {
  Charges device;
  {
    Charge charge(MemoryKind::stream_ordered, 0, 3 * kMiB);
    REQUIRE(charge.place(kPage));
    CHECK(device->cap.charged() == 2 * kPage);
  }
  CHECK(device->cap.charged() == 0);
}

TEST_CASE("over the cap the driver is not asked, and the refusal is counted and told") {
  Charges device(10 * kMiB);
  REQUIRE(allocate(100, 8 * kMiB));
  const uint64_t refused = device->ledger.refused_by_cap.get();
  Charge charge(MemoryKind::direct, 0, 3 * kMiB);
  CHECK(charge.refused());
  CHECK_FALSE(charge.made());
  CHECK(device->cap.charged() == 8 * kMiB);
  CHECK(device->ledger.refused_by_cap.get() == refused + 1);
  CHECK(fakes().logged.find("3.0 MiB requested on device 0") != std::string::npos);
  CHECK(fakes().logged.find("has counted 8.0 of 10.0 MiB") != std::string::npos);
  CHECK(allocate(200, 2 * kMiB));  // to the last byte
  free_it(100);
  free_it(200);
}

// --- idle memory makes room ---

TEST_CASE("under the cap idle memory is released as long as that gives anything") {
  Charges device(10 * kMiB);
  REQUIRE(device->cap.charge(uint64_t{10} * kMiB));  // by a pool, a page at a time
  int pages = GENERATE(0, 1, 2, 3);
  const bool enough = pages >= 2;
  fakes().release_idle = [&](CUdevice ordinal) {
    if (ordinal != 0 || pages-- <= 0) return false;
    device_state(0).cap.refund(kPage);
    return true;
  };
  CHECK(allocate(100, 4 * kMiB) == enough);
  CHECK(device->cap.charged() ==
        (enough ? 10 : 10 - 2 * std::max(0, fakes().releases.load() - 1)) * kMiB);
  free_it(100);
  while (device->cap.charged() != 0) device->cap.refund(kPage);
}

TEST_CASE("others may take each time what was released: a request gives up some time") {
  Charges device(10 * kMiB);
  REQUIRE(allocate(100, 10 * kMiB));
  fakes().release_idle = [](CUdevice) { return true; };
  CHECK_FALSE(allocate(200, kMiB));
  CHECK(fakes().releases == 16);
  free_it(100);
}

TEST_CASE("for more than the whole cap nothing is released") {
  Charges device(10 * kMiB);
  fakes().release_idle = [](CUdevice) { return true; };
  CHECK_FALSE(allocate(100, 10 * kMiB + 1));
  CHECK(fakes().releases == 0);
}

TEST_CASE("the driver is asked again as long as it is out of memory and something was released") {
  Charges device;
  fakes().release_idle = [](CUdevice) { return fakes().releases <= 3; };
  int asked = 0;
  const auto ask = [&](int granted_at, CUresult otherwise) {
    asked = fakes().releases = 0;
    Charge charge(MemoryKind::direct, 0, kMiB);
    return charge.ask([&] { return ++asked == granted_at ? CUDA_SUCCESS : otherwise; });
  };
  CHECK(ask(3, CUDA_ERROR_OUT_OF_MEMORY) == CUDA_SUCCESS);
  CHECK(asked == 3);
  CHECK(ask(9, CUDA_ERROR_OUT_OF_MEMORY) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(asked == 4);
  CHECK(ask(2, CUDA_ERROR_INVALID_VALUE) == CUDA_ERROR_INVALID_VALUE);
  CHECK(asked == 1);
  CHECK(fakes().releases == 0);
}

// --- sizes that change ---

TEST_CASE("a charge is corrected to what the driver took") {
  Charges device(16 * kMiB);
  for (const uint64_t real : {2, 4, 6, 14}) {
    Charge charge(MemoryKind::direct, 0, 4 * kMiB);
    CHECK(charge.resize(real * kMiB));
    CHECK(device->cap.charged() == real * kMiB);
    charge.keep(100, nullptr);
    CHECK(taken(*device, MemoryKind::direct) == real * kMiB);
    free_it(100);
    CHECK(device->cap.charged() == 0);
  }
}

TEST_CASE("a charge that cannot grow goes back with the size it had") {
  Charges device(16 * kMiB);
  {
    Charge charge(MemoryKind::direct, 0, 4 * kMiB);
    CHECK_FALSE(charge.resize(18 * kMiB));
    CHECK(charge.refused());
    CHECK(device->cap.charged() == 4 * kMiB);
  }
  CHECK(device->cap.charged() == 0);
}

TEST_CASE("a charge that is handed over ends with its refund") {
  Charges device;
  {
    Charge charge(MemoryKind::physical, 0, 4 * kMiB);
    charge.hand_over();
    CHECK_FALSE(charge.made());
  }
  CHECK(device->cap.charged() == 4 * kMiB);
  CHECK(taken(*device, MemoryKind::physical) == 4 * kMiB);
  refund(MemoryKind::physical, 0, 4 * kMiB);
}
