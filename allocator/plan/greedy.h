// SPDX-License-Identifier: Apache-2.0
// Greedy packings: places the blocks in one of several orders, each at the lowest offset or in the
// smallest gap where it fits. The best order differs from program to program, so the planner tries
// all. Once the budget is spent, the remaining blocks go on top, in O(log n) each, so a packing is
// always complete. One thread at a time.
#pragma once

#include <cstdint>

#include "allocator/plan/budget.h"
#include "allocator/plan/placement.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// Every order but birth begins with the largest value.
enum class Order : uint8_t {
  bytes,
  area,      // bytes × sections
  length,    // sections
  birth,     // the earliest first
  moderate,  // bytes × fourth root of the sections
  pressure,  // bytes × root of the sections, and more where much is live
  peak,      // bytes × sections; a section with more live counts more
};
enum class Fit : uint8_t { first, best };

struct Packing {
  Order order;
  Fit fit;
  const char* name;
};

// In the order in which they are worth trying.
inline constexpr Packing kPackings[] = {
    {Order::pressure, Fit::first, "by pressure, first fit"},
    {Order::bytes, Fit::first, "by size, first fit"},
    {Order::moderate, Fit::first, "by size and time, first fit"},
    {Order::birth, Fit::best, "by time, best fit"},
    {Order::area, Fit::first, "by area, first fit"},
    {Order::length, Fit::best, "by lifetime, best fit"},
    {Order::bytes, Fit::best, "by size, best fit"},
    {Order::area, Fit::best, "by area, best fit"},
    {Order::birth, Fit::first, "by time, first fit"},
    {Order::length, Fit::first, "by lifetime, first fit"},
};

// Writes the key of each block in this order; the block with the highest key comes first. False
// without memory.
bool keys_of(const Problem& problem, Order order, Array<double>& out);

// The blocks' numbers in this order. False without memory.
bool sort_blocks(const Problem& problem, Order order, Array<uint32_t>& out);

// Fills `placement`, which was made for the problem. With Fit::first a small block gets any place
// below the highest end so far. False without memory.
bool pack(const Problem& problem, const Packing& packing, Placement& placement, Budget& budget);

// Where the highest block ends.
uint64_t height_of(std::span<const Block> blocks, std::span<const uint64_t> offsets);

}  // namespace cistern::alloc::plan
