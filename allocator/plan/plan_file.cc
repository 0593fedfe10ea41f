// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/plan_file.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kMostAlignment = uint64_t{1} << 30;
constexpr const char* kAnother = "what cistern plan wrote; copy it again, or plan again";
constexpr const char* kFewer = "some thousands";
constexpr PlanProblem kNone{};

// FNV-1a over words of eight bytes: it finds damage, and is no protection against intent.
class Checksum {
 public:
  void add(const void* data, size_t bytes) {
    const auto* at = static_cast<const uint8_t*>(data);
    for (; bytes != 0; at += 8, bytes -= 8) {
      uint64_t word;
      std::memcpy(&word, at, sizeof word);
      sum_ = (sum_ ^ word) * 0x100000001B3;
    }
  }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0xCBF29CE484222325;
};

uint64_t checksum_of(const PlanHead& head, const void* requests) {
  Checksum checksum;
  checksum.add(&head, offsetof(PlanHead, checksum));
  checksum.add(requests, head.requests * sizeof(PlannedRequest));
  return checksum.sum();
}

// The blocks that live at one time, by offset. Each of them that is behind a new one moves.
class Live {
 public:
  bool make(size_t most) { return blocks_.make(most); }

  // Whether so much was moved that the rest is left out: some seconds.
  bool too_long() const { return moved_ > kMostMoved; }

  // False if another one has a byte of it.
  bool add(uint64_t offset, uint64_t end) {
    Extent* const at = find(offset);
    if (at != blocks_.begin() && at[-1].end > offset) return false;
    if (at != last() && at->offset < end) return false;
    move(at + 1, at, last());
    *at = {.offset = offset, .end = end};
    ++count_;
    return true;
  }
  void remove(uint64_t offset) {
    Extent* const at = find(offset);
    move(at, at + 1, last());
    --count_;
  }

 private:
  struct Extent {
    uint64_t offset, end;
  };

  static constexpr uint64_t kMostMoved = uint64_t{1} << 31;

  void move(Extent* to, const Extent* from, const Extent* end) {
    const auto count = static_cast<size_t>(end - from);
    std::memmove(to, from, count * sizeof(Extent));
    moved_ += count;
  }
  Extent* last() { return blocks_.begin() + count_; }
  Extent* find(uint64_t offset) {
    return std::lower_bound(blocks_.begin(), last(), offset,
                            [](const Extent& one, uint64_t o) { return one.offset < o; });
  }

  Array<Extent> blocks_;
  size_t count_ = 0;
  uint64_t moved_ = 0;
};

}  // namespace

void finish_head(PlanHead& head, std::span<const PlannedRequest> requests) {
  std::memcpy(head.magic, kPlanMagic, sizeof kPlanMagic);
  head.version = kPlanVersion;
  head.head_bytes = sizeof head;
  head.requests = requests.size();
  head.checksum = checksum_of(head, requests.data());
}

PlanProblem Plan::read(std::span<const uint8_t> file) {
  const PlanProblem problem = read_first(&file);
  if (problem.what != nullptr || file.empty()) return problem;
  return {"something behind the plan: its bytes", file.size(), kAnother};
}

PlanProblem Plan::read_first(std::span<const uint8_t>* file) {
  head_ = {};
  if (file->size() < sizeof head_) return {"no plan: too short", file->size(), "at least 80 bytes"};
  std::memcpy(&head_, file->data(), sizeof head_);
  requests_ = file->data() + sizeof head_;
  if (const PlanProblem problem = check_head(file->size()); problem.what != nullptr) return problem;
  *file = file->subspan(sizeof head_ + head_.requests * sizeof(PlannedRequest));
  if (const PlanProblem problem = check_requests(); problem.what != nullptr) return problem;
  if (const PlanProblem problem = check_lives(); problem.what != nullptr) return problem;
  return check_end();
}

PlanProblem Plan::check_head(uint64_t file_bytes) const {
  if (std::memcmp(head_.magic, kPlanMagic, sizeof kPlanMagic) != 0) {
    return {"no plan: it begins otherwise", 0, kAnother};
  }
  if (head_.version != kPlanVersion) return {"a plan of another version", head_.version, "1"};
  if (head_.head_bytes != sizeof head_) return {"bytes of the head", head_.head_bytes, "80"};
  if (head_.requests == 0) return {"a plan without requests", 0, "one and more"};
  if (head_.requests > kMostBlocks ||
      head_.requests * sizeof(PlannedRequest) > file_bytes - sizeof head_) {
    return {"the file's bytes do not match its requests", head_.requests, kAnother};
  }
  if (head_.checksum != checksum_of(head_, requests_)) {
    return {"a damaged plan: the checksum differs", head_.checksum, kAnother};
  }
  if (head_.period < Period::run || head_.period > Period::thread) {
    return {"an unknown kind of period", static_cast<uint64_t>(head_.period), "1 to 3"};
  }
  if (head_.calls < head_.requests || head_.calls > 2 * head_.requests) {
    return {"calls of the period", head_.calls, "one or two for each request"};
  }
  if (!std::has_single_bit(head_.alignment) || head_.alignment > kMostAlignment) {
    return {"the alignment", head_.alignment, "a power of two up to 2^30"};
  }
  if (head_.before > kMostBlocks) return {"requests before the period", head_.before, "up to 2^30"};
  if (head_.bytes > kMostBytes || head_.lower_bound > head_.bytes) {
    return {"the plan's bytes", head_.bytes, "the lower bound to 2^62"};
  }
  return kNone;
}

PlanProblem Plan::check_requests() const {
  uint64_t earliest = 0, streams = 0;
  for (uint64_t i = 0; i < head_.requests; ++i) {
    const PlannedRequest one = request(i);
    if (one.outside > 1 || (one.outside == 1 && (one.offset != 0 || one.freed != head_.calls))) {
      return {"a request that is the pool's, and has a place: its number", i, kAnother};
    }
    const uint64_t most = one.outside == 1 ? kMostBytes : head_.bytes;
    if (one.bytes == 0 || one.bytes > most || one.offset > most - one.bytes) {
      return {"a request outside the plan's bytes: its number", i, kAnother};
    }
    if (one.offset % head_.alignment != 0) {
      return {"a request that is not aligned: its number", i, kAnother};
    }
    if (one.allocated < earliest || one.freed <= one.allocated || one.freed > head_.calls) {
      return {"a request out of order: its number", i, kAnother};
    }
    if (one.stream > streams + 1) {
      return {"a request on an unknown stream: its number", i, kAnother};
    }
    earliest = uint64_t{one.allocated} + 1;
    streams = std::max<uint64_t>(streams, one.stream);
  }
  return kNone;
}

PlanProblem Plan::check_end() const {
  uint64_t end = 0;
  for (uint64_t i = 0; i < head_.requests; ++i) {
    const PlannedRequest one = request(i);
    if (one.outside == 0) end = std::max(end, one.offset + one.bytes);
  }
  const uint64_t rounded = (end + head_.alignment - 1) & ~(head_.alignment - 1);
  if (head_.bytes <= rounded) return kNone;
  return {"the plan's bytes", head_.bytes, "the end of the last request"};
}

// Goes through the calls of the period as a program would make them.
PlanProblem Plan::check_lives() const {
  constexpr PlanProblem kNoMemory = {"no memory to check the plan", 0, "a machine with more"};
  Array<uint32_t> freed_by;  // by call: the request's number and 1
  Live live;
  if (!freed_by.make(head_.calls) || !live.make(head_.requests)) return kNoMemory;
  for (uint64_t i = 0; i < head_.requests; ++i) {
    const uint32_t call = request(i).freed;
    if (call == head_.calls) continue;
    if (freed_by[call] != 0) return {"two frees in one call: the call", call, kAnother};
    freed_by[call] = static_cast<uint32_t>(i + 1);
  }
  uint64_t next = 0;
  for (uint64_t call = 0; call < head_.calls; ++call) {
    const bool allocates = next < head_.requests && request(next).allocated == call;
    const bool frees = freed_by[call] != 0;
    if (allocates == frees) return {"a call that is no allocation or free", call, kAnother};
    if (frees) {
      live.remove(request(freed_by[call] - 1).offset);
      continue;
    }
    const PlannedRequest one = request(next);
    if (one.outside == 0 && !live.add(one.offset, one.offset + one.bytes)) {
      return {"a request on bytes that another one has: its number", next, kAnother};
    }
    ++next;
    if (live.too_long()) return {"too many requests live at once: the request", next, kFewer};
  }
  return kNone;
}

}  // namespace cistern::alloc::plan
