// SPDX-License-Identifier: Apache-2.0
// A device with a cap, and allocations on it that the driver grants.
#pragma once

#include "shim/kinds/charges.h"
#include "tests/catch.h"
#include "tests/unit/shim/fake_shim.h"

namespace cistern::test::charged_device {

inline constexpr uint64_t kMiB = uint64_t{1} << 20, kPage = 2 * kMiB;
inline constexpr uint64_t kDeviceBytes = 1024 * kMiB;

inline CUcontext context(uintptr_t n) { return reinterpret_cast<CUcontext>(n); }

inline uint64_t taken(const shim::Device& device, alloc::MemoryKind kind) {
  return device.ledger.taken[static_cast<int>(kind)].get();
}

// One device of kDeviceBytes with a cap, on which nothing is charged yet.
class Charges {
 public:
  explicit Charges(uint64_t limit = 64 * kMiB) {
    reset_fakes();
    shim::charges_wanted = true;
    fakes().driver.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice device) {
      *bytes = kDeviceBytes;
      return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    };
    shim::Device* known = shim::known_device(0);
    REQUIRE(known != nullptr);
    REQUIRE(known->cap.charged() == 0);
    device_ = known;
    known->cap.set_limit(limit);
    known->max_request_bytes = limit == 0 ? kDeviceBytes : limit;
  }
  ~Charges() {
    fakes().active = true;
    for (uintptr_t n = 1; n < 8; ++n) shim::context_charges_gone(context(n));
    CHECK(device_->cap.charged() == 0);
    for (const auto& bytes : device_->ledger.taken) CHECK(bytes.get() == 0);
    device_->cap.set_limit(0);
    shim::charges_wanted = false;
  }

  shim::Device* operator->() { return device_; }
  shim::Device& operator*() { return *device_; }

 private:
  shim::Device* device_;
};

// An allocation that the driver grants. The key of stream-ordered memory is its address.
inline bool allocate(uint64_t key, uint64_t bytes, CUcontext of = nullptr,
                     alloc::MemoryKind kind = alloc::MemoryKind::direct) {
  shim::Charge charge(kind, 0, bytes);
  if (charge.refused() || !charge.place(key)) return false;
  charge.keep(key, of);
  return true;
}

inline CUresult free_it(uint64_t key, CUresult answer = CUDA_SUCCESS) {
  return shim::refunding(key, [=] { return answer; });
}

}  // namespace cistern::test::charged_device
