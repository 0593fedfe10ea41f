// SPDX-License-Identifier: Apache-2.0
// Greedy packings: blocks in one of several orders, each to the lowest offset or to the smallest
// gap where it fits. Which order is best differs from program to program, so a planner tries them
// all. Once the budget is spent the rest goes on top of what is placed, which takes O(log n) a
// block: a packing is always a whole one. One thread at a time.
#pragma once

#include <cstdint>

#include "allocator/plan/budget.h"
#include "allocator/plan/placement.h"
#include "allocator/plan/problem.h"

namespace cistern::alloc::plan {

// All but birth: the most first.
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

// By block, what the order goes by: the highest first. False without memory.
bool keys_of(const Problem& problem, Order order, Array<double>& out);

// The blocks' numbers in this order. False without memory.
bool sort_blocks(const Problem& problem, Order order, Array<uint32_t>& out);

// Fills `placement`, which was made for the problem. First fits give small blocks any place below
// the highest end so far. False without memory.
bool pack(const Problem& problem, const Packing& packing, Placement& placement, Budget& budget);

// Where the highest block ends.
uint64_t height_of(std::span<const Block> blocks, std::span<const uint64_t> offsets);

}  // namespace cistern::alloc::plan
