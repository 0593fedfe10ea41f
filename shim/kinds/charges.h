// SPDX-License-Identifier: Apache-2.0
// Memory that the program holds from the driver itself, outside the pools. It is charged to the cap
// of its device and counted for the report. A charge is made before the driver is asked and taken
// back when the driver refuses; a record by address or handle finds it again at the free, from any
// thread and with any current context. The driver places stream-ordered memory, and linear memory
// below 1 MiB, side by side (allocator/base/cap.h). Such memory is first charged with the least it
// may take (nothing if it is uncertain whether it fits under the cap), and with the rest once its
// address is known. The driver gives no address of arrays. Charges are kept only with a cap or a
// report; otherwise each hook pays one branch.
//
// Not charged, because the program does not hold them: nodes of graphs, memory imported from
// another process (the exporter pays), host memory, arrays without memory of their own (sparse,
// deferred mapping), the context and its modules. Any thread; no lock is held across a driver call.
#pragma once

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/order/shared.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/process/settings.h"

namespace cistern::shim {

using alloc::MemoryKind;

// At load: whether charges are kept at all.
void open_charges(const config::Policy& policy);
extern constinit bool charges_wanted;
inline bool charging() { return active() && charges_wanted && driver().complete; }

// One allocation on its way from the program to the driver.
class Charge {
 public:
  // Charges `bytes`. If the cap has no room, first releases idle memory on the device; if that is
  // not enough, refused() is true. Without bytes or without a device nothing is charged.
  Charge(MemoryKind kind, CUdevice device, uint64_t bytes);
  // Takes the charge back unless it was kept.
  ~Charge();
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  bool refused() const { return refused_; }
  bool made() const { return charged_ != nullptr; }

  // Makes the driver's call. While the driver is out of memory, releases idle memory and makes the
  // call again.
  template <typename Call>
  CUresult ask(Call call) {
    return again_with_idle_memory(call(), call, [this] { return return_idle(); });
  }

  // Corrects the charge to the size that the driver really allocated; false if the cap has no room.
  bool resize(uint64_t bytes);

  // The driver placed the memory at this address. If it may share pages with other memory, corrects
  // the charge to the pages that no other charged memory touches. False if the cap has no room.
  bool place(uint64_t address);

  // The allocation succeeded: the charge stays until refunding() sees the key freed, or the
  // context (if any) is gone.
  void keep(uint64_t key, CUcontext context);

  // The allocation succeeded, and the caller keeps track of it: it must end the charge by refund().
  void hand_over();

 private:
  bool return_idle();
  bool hold(uint64_t bytes);
  template <typename Exchange>
  bool fits(uint64_t bytes, Exchange exchange);

  MemoryKind kind_;
  bool refused_ = false;
  CUdevice device_;
  uint64_t bytes_;
  alloc::Cap::Weight held_;  // what the cap holds for it, unless it is charged by its pages
  uint64_t place_ = 0;       // 0: not charged by its pages
  Device* charged_;          // nullptr: nothing is charged
};

// Ends a charge after hand_over(). Not for stream-ordered memory.
void refund(MemoryKind kind, CUdevice device, uint64_t bytes);

// Around a free of memory that Charge::keep() recorded. take_charge() removes the record before the
// driver's call, because another thread may get the key as soon as the driver has freed it.
// settle_charge() refunds the charge if the driver freed the memory, else puts the record back.
struct ChargeRecord;
ChargeRecord* take_charge(uint64_t key);
void settle_charge(ChargeRecord* record, bool freed);

template <typename Free>
CUresult refunding(uint64_t key, Free free_it) {
  ChargeRecord* record = charging() ? take_charge(key) : nullptr;
  const CUresult result = free_it();
  if (record != nullptr) settle_charge(record, result == CUDA_SUCCESS);
  return result;
}

// The context is gone and with it what was allocated in it; stream-ordered and physical memory are
// the device's and stay.
void context_charges_gone(CUcontext context);

void reset_charges_after_fork();

}  // namespace cistern::shim
