// SPDX-License-Identifier: Apache-2.0
// CUDA's memory sources. All of it runs inside calls of the program, or in the background thread
// (contexts/context_life.cc). Driver calls that the program did not ask for pass the capture gate
// (capture_gate.h).
//
// CudaSource has chunks from cuMemAlloc, order from events recorded for a whole context or, by
// drivers that cannot do that, for each of its streams (streams/stream_marks.h). mark(), query(),
// forget() and stream_leaves() are called by one thread at a time (allocator/reclaim/reclaim.h).
//
// CudaUnits (cuda_units.cc) has physical memory and addresses by the driver's virtual memory
// management. None of these calls belongs to a context, so a pool's units outlive the context and
// go back after its end. The calls go to the driver directly: the program's own virtual memory
// management (kinds/unpooled.h) never sees these units. create() and map() run inside calls of the
// program that request memory, and behave in a capture like those. The others are Cistern's own.
// unmap() passes the capture gate. release() and free_addresses() must be made in a capture too, by
// a thread with relaxed mode (cuda.h, cuThreadExchangeStreamCaptureMode). Any thread.
#pragma once

#include <atomic>

#include "allocator/base/source.h"
#include "shim/cuda_api.h"
#include "shim/order/streams/stream_marks.h"

namespace cistern::shim {

class CudaUnits final : public alloc::UnitSource {
 public:
  // What the units of a context need from the source that owns them.
  struct Owner {
    CUcontext context;
    CUdevice device;
    uint32_t number;                     // the context's
    const std::atomic<int>* closing;     // threads in a call that may end the context
    std::atomic<int>* at_work;           // threads in driver calls that a closing call awaits
    uint64_t (*peers)(uint32_t number);  // the devices with access to the context's memory, as bits
  };

  // `wanted`: whether the settings ask for units. Makes driver calls, which need no context.
  void init(const Owner& owner, bool wanted);
  // The context is gone. From now on its units may go back even while a capture is in progress,
  // because nothing would try again later.
  void context_gone() { gone_.store(true); }
  // Whether units can be shared with other processes. export_file() makes a descriptor of one for
  // that, under a high number; the caller closes it. After an error there is none.
  bool can_be_files() const;
  CUresult export_file(alloc::Unit unit, int* file) const;
  // Peer access was enabled or disabled: updates the access of all devices to the mapped range.
  int access_changed(uint64_t address, uint64_t bytes);

  uint64_t unit_bytes() override { return unit_bytes_; }
  int reserve_addresses(uint64_t bytes, uint64_t* address) override;
  void free_addresses(uint64_t address, uint64_t bytes) override;
  uint64_t most_units() override;
  int create(alloc::Unit* unit) override;
  void release(alloc::Unit unit) override;
  int map(uint64_t address, const alloc::Unit* units, uint32_t count) override;
  int unmap(uint64_t address, uint32_t count) override;
  int unmap_of_gone(uint64_t address, uint64_t bytes) override;

 private:
  // Uses of a unit other than by kernels and copies, as bits.
  enum Ability : uint8_t { kForRdma = 1, kAsFile = 2 };

  CUresult map_one(uint64_t address, alloc::Unit unit);
  void undo_map(uint64_t address, uint32_t count);
  bool unmap_stuck(uint64_t address);
  static CUresult unmap_for_sure(uint64_t address, uint64_t bytes, CUcontext context);
  static int unmap_gone(uint64_t address, uint64_t bytes, uint32_t count);
  uint8_t abilities() const;
  CUmemAllocationProp properties(uint8_t abilities) const;
  uint64_t devices() const;
  int give_access(uint64_t address, uint64_t bytes, uint64_t given) const;
  CUresult set_access(uint64_t address, uint64_t bytes, uint64_t with, uint64_t without) const;
  void note_mapped(uint64_t address, uint32_t count) const;
  static void note_unmapped(uint64_t address, uint64_t bytes, uint32_t count);

  Owner owner_;
  std::atomic<uint64_t> unit_bytes_;  // read for units of contexts that ended, too
  std::atomic<uint8_t> abilities_;
  std::atomic<bool> created_;  // a unit with these abilities
  std::atomic<bool> gone_;
  std::atomic<uint32_t> stuck_{0};  // mappings that failed, and could not be undone yet
};

class CudaSource final : public alloc::MemorySource {
 public:
  // Functions of the code that knows the other contexts (context_life.cc).
  struct Others {
    bool (*request_background_work)(bool soon);
    bool (*release_from_other_pools)(CUdevice device);
    void (*look_at_ties)();
    uint64_t (*peers)(uint32_t number);  // CudaUnits::Owner
  };

  // `number`: the context's.
  void init(CUcontext context, CUdevice device, uint32_t number, const Others* others);

  // Whether some thread is in a driver call that may end the context (EndingScope): until it is
  // over, no call of Cistern's may touch the context.
  bool closing() const { return closing_.load(std::memory_order_seq_cst) != 0; }
  void begin_closing() { closing_.fetch_add(1, std::memory_order_seq_cst); }
  void end_closing() { closing_.fetch_sub(1, std::memory_order_seq_cst); }

  // No hook saw the creation of the context, so none may see its end: Cistern makes no call of its
  // own on it. Only the program's synchronisations show that its work has ended.
  void set_careful(bool careful) { careful_.store(careful, std::memory_order_seq_cst); }
  // No hook saw the creation of a stream of the context. There may be more such streams, so marks
  // of streams are no longer made.
  void stream_unseen() { stream_marks_.stream_unseen(); }

  int obtain(uint64_t bytes, uint64_t* address) override;
  int release_for_program(uint64_t address, const alloc::OrderedFree* ordered) override;
  int release(uint64_t address) override;
  CudaUnits* units() override { return units_.unit_bytes() == 0 ? nullptr : &units_; }
  // The context has ended.
  void context_gone() { units_.context_gone(); }
  bool request_background_work(bool soon) override;
  bool refuses_release() override;
  bool can_release_clean() override;
  bool release_clean_untried() override;
  bool release_clean_trusted() override;
  bool unsettled() override { return unsettled_.load(); }
  bool settle_clean_releases() override;
  int release_clean(uint64_t address, uint64_t bytes) override;
  bool pays_what_it_owes(bool waits) override;
  // kNotNow while the program captures, as for every driver call of Cistern's own.
  int fill(const alloc::FillRange* ranges, int count) override;
  // Whether some thread is in a driver call that fills or releases memory of the context.
  bool at_work() const { return at_work_.load(std::memory_order_seq_cst) != 0; }
  bool release_from_other_pools() override;
  bool graph_is_open(uint32_t run) override;
  void graphs_overlap() override;
  void plan_made(uint64_t bytes, uint64_t requests) override;
  void shortage_ended(alloc::Step step, uint64_t bytes) override;
  bool mark(alloc::Mark* out) override;
  bool ending() override;
  bool marks_may_come() override;
  bool marks_anywhere() override;
  void look_at_ties() override;
  uint64_t memory_bytes() override;
  alloc::MarkState query(alloc::Mark mark) override;
  void forget(alloc::Mark mark) override;

  // To be called before a stream of this context is destroyed. False if marks cannot cover the work
  // that it still has.
  bool stream_leaves(CUstream stream);
  // How many threads of the program are in a synchronisation of the whole context.
  std::atomic<int>& synchronising() { return synchronising_; }
  // The program has synchronised the whole context. `losses` is StreamRegistry::losses() from
  // before that.
  void synchronised(uint64_t losses) { stream_marks_.synchronised(losses); }

 private:
  bool may_touch_context() const;
  bool take_event(CUevent* event);
  CUstream own_stream();
  CUresult wait_for(CUstream stream) const;
  void note_clean_release(bool helped);

  static constexpr int kEvents = kMostMarks + 1;  // one is being recorded

  CUcontext context_;
  CUdevice device_;
  const Others* others_;
  std::atomic<int> closing_;  // threads; some may have begun while an earlier context had the slot
  std::atomic<bool> careful_;
  std::atomic<int> synchronising_{0};
  std::atomic<int> at_work_;  // threads that fill or release memory
  CUevent spare_[kEvents];
  int spares_;
  std::atomic<CUstream> own_stream_;
  // Whether cuMemFreeAsync gives memory of cuMemAlloc back to the device at once.
  enum class CleanRelease : uint8_t { unknown, helps, helps_not };
  std::atomic<CleanRelease> clean_release_;
  std::atomic<bool> unsettled_;  // it is not known yet whether a release in stream order helped
  std::atomic<int> clean_releases_in_vain_;
  StreamMarks stream_marks_;
  CudaUnits units_;
};

}  // namespace cistern::shim
