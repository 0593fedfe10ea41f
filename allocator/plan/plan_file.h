// SPDX-License-Identifier: Apache-2.0
// Plan files (FORMAT.md): `cistern plan` writes them, and a plan arena serves requests from them.
// The k-th request of a period is expected to be the k-th of the plan, which takes one comparison
// of sizes. Files are checked: in an accepted file no two blocks share a byte while both live, and
// no block lies beyond the plan's bytes.
//
// A Plan refers to the bytes of its file, which the caller keeps. Any thread may use one.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace cistern::alloc::plan {

inline constexpr char kPlanMagic[8] = {'C', 'I', 'S', 'T', 'P', 'L', 'N', '\n'};
inline constexpr uint32_t kPlanVersion = 1;

// What the requests of a plan are.
enum class Period : uint32_t {
  run = 1,
  iteration = 2,
  thread = 3,  // an iteration of one thread; a device has several such plans
  phase = 4,   // an iteration of the requests in phases; never in a file
};
inline constexpr unsigned kMostPlans = 16;  // per device

struct PlanHead {
  char magic[8];
  uint32_t version;
  uint32_t head_bytes;
  uint32_t device;
  Period period;
  uint64_t requests;
  uint64_t calls;  // allocations and frees of the period
  uint64_t bytes;  // of the plan's memory
  uint64_t lower_bound;
  uint64_t alignment;
  uint64_t before;  // requests that the program made before the period
  uint64_t checksum;
};
static_assert(sizeof(PlanHead) == 80);

// The n-th request of the plan is the n-th of these.
struct PlannedRequest {
  uint64_t bytes;  // as requested
  uint64_t offset;
  uint32_t allocated;  // number of the call in the period
  uint32_t freed;      // number of the call; PlanHead::calls if it outlives the period
  uint32_t stream;     // numbered by first use in the plan; 0 for calls without a stream
  uint32_t outside;    // 1: it has no place in the plan, and a pool serves it; otherwise 0
};
static_assert(sizeof(PlannedRequest) == 32);

// Why a file is refused; `what` is nullptr if it is not.
struct PlanProblem {
  const char* what = nullptr;
  uint64_t seen = 0;
  const char* allowed = "";
};

class Plan {
 public:
  Plan() = default;
  // A plan that was made in memory, and is not checked. `requests` must outlive it.
  Plan(const PlanHead& head, const PlannedRequest* requests)
      : head_(head), requests_(reinterpret_cast<const uint8_t*>(requests)) {}

  // Reads a plan from `file`, which holds nothing else. Returns what is wrong, if anything.
  PlanProblem read(std::span<const uint8_t> file);
  // Reads the first plan in *file, and leaves the bytes behind it in *file.
  PlanProblem read_first(std::span<const uint8_t>* file);

  const PlanHead& head() const { return head_; }
  PlannedRequest request(uint64_t number) const { return request_at(place_of(number)); }
  // place_of(): where a request lies in the file. request_at(): the request there. The next one is
  // sizeof(PlannedRequest) behind it.
  const uint8_t* place_of(uint64_t number) const {
    return requests_ + number * sizeof(PlannedRequest);
  }
  // Reads field by field, so a caller pays only for the fields that it uses.
  static PlannedRequest request_at(const uint8_t* at) {
    const auto read = [&at](auto* field) {
      std::memcpy(field, at, sizeof *field);
      at += sizeof *field;
    };
    PlannedRequest request;
    read(&request.bytes);
    read(&request.offset);
    read(&request.allocated);
    read(&request.freed);
    read(&request.stream);
    read(&request.outside);
    return request;
  }

 private:
  PlanProblem check_head(uint64_t file_bytes) const;
  PlanProblem check_requests() const;
  PlanProblem check_lives() const;
  PlanProblem check_end() const;

  PlanHead head_{};
  const uint8_t* requests_ = nullptr;
};

// The memory of all plans together.
inline uint64_t bytes_of(std::span<const Plan> plans) {
  uint64_t bytes = 0;
  for (const Plan& plan : plans) bytes += plan.head().bytes;
  return bytes;
}

// Sets the fields that follow from the others: magic, version, checksum, number of requests.
void finish_head(PlanHead& head, std::span<const PlannedRequest> requests);

}  // namespace cistern::alloc::plan
