// SPDX-License-Identifier: Apache-2.0
// A device's part of the report: the figures that every report has, then one line or object for
// each setting that is on.
#include "allocator/chunk_pools/groups.h"
#include "shim/process/report_writer.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

using alloc::Ledger;
using alloc::WorkedBy;

// The kinds of memory that the process has on a device: the pools, then the MemoryKinds in order.
constexpr const char* kKindNames[] = {"pools",          "direct",   "arrays",
                                      "stream-ordered", "physical", "managed"};
static_assert(std::size(kKindNames) == 1 + alloc::kMemoryKinds);

uint64_t taken(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved.get() : l.taken[kind - 1].get();
}
uint64_t taken_peak(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved_peak.get() : l.taken_peak[kind - 1].get();
}

// The static memory mode that a strategy implements.
unsigned mode_of(alloc::StrategyKind strategy) {
  if (strategy == alloc::StrategyKind::unit_arena) return 4;
  return strategy == alloc::StrategyKind::expandable ? 3 : 2;
}

// Bytes that graphs save by sharing arenas.
uint64_t gain_of_arena(const alloc::Ledger& l) {
  const uint64_t sum = l.graph_bytes.get(), peak = l.arena_peak.get();
  return sum > peak ? sum - peak : 0;
}

// GE_USE_STATIC_MEMORY=3 and 4.
void write_units(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  writer.text(
      "cistern:   units          static memory mode %u: %lu mapped, %.1f MiB of them idle; %lu "
      "created, %lu released; %lu requests moved %lu units\n",
      mode_of(device.strategy), l.units.get(), mib(device.usage.idle), l.units_created.get(),
      l.units_released.get(), l.remaps.get(), l.units_remapped.get());
  writer.numbers(",\n     \"units\": {", "mode mapped idle_bytes created released remaps remapped",
                 "}", mode_of(device.strategy), l.units.get(), device.usage.idle,
                 l.units_created.get(), l.units_released.get(), l.remaps.get(),
                 l.units_remapped.get());
}

// GE_USE_STATIC_MEMORY=2 and 4.
void write_arena(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  writer.text(
      "cistern:   arena          static memory mode %u: %lu graphs need %.1f MiB together; at "
      "most %.1f MiB taken for them, %.1f MiB gained; taken %lu times, %lu increments; %lu graphs "
      "apart, %lu arenas left\n",
      mode_of(device.strategy), l.graphs.get(), mib(l.graph_bytes.get()), mib(l.arena_peak.get()),
      mib(gain_of_arena(l)), l.arenas_taken.get(), l.arena_increments.get(), l.graphs_apart.get(),
      l.arenas_left.get());
  writer.numbers(",\n     \"arena\": {",
                 "mode graphs sum_bytes bytes peak_bytes gain_bytes taken increments apart left",
                 "}", mode_of(device.strategy), l.graphs.get(), l.graph_bytes.get(),
                 l.arena_bytes.get(), l.arena_peak.get(), gain_of_arena(l), l.arenas_taken.get(),
                 l.arena_increments.get(), l.graphs_apart.get(), l.arenas_left.get());
}

// CISTERN_PLAN.
void write_plan(Writer& writer, const Ledger& l) {
  writer.text(
      "cistern:   plan           %.1f MiB; %lu requests served at their place, %lu whose place "
      "was not free; entered %lu times, left %lu, followed to its end %lu; %lu plans made by "
      "itself\n",
      mib(l.plan_bytes.get()), l.plan_served.get(), l.plan_occupied.get(), l.plan_entered.get(),
      l.plan_left.get(), l.plan_periods.get(), l.plans_made.get());
  writer.numbers(",\n     \"plan\": {", "bytes served occupied entered left periods made", "}",
                 l.plan_bytes.get(), l.plan_served.get(), l.plan_occupied.get(),
                 l.plan_entered.get(), l.plan_left.get(), l.plan_periods.get(), l.plans_made.get());
}

void write_garbage(Writer& writer, const alloc::Garbage& garbage) {
  writer.text(
      "cistern:   held back      %.1f MiB until the threshold (%lu flushes), %.1f MiB until a "
      "synchronisation, %.1f MiB until memory was short\n",
      mib(garbage.until_threshold.get()), garbage.flushes.get(),
      mib(garbage.until_synchronise.get()), mib(garbage.flushed_when_short.get()));
  writer.numbers(",\n     \"garbage\": {", "flushes collected_bytes kept_bytes drained_bytes", "}",
                 garbage.flushes.get(), garbage.until_threshold.get(),
                 garbage.until_synchronise.get(), garbage.flushed_when_short.get());
}

void write_idle(Writer& writer, const Ledger& l) {
  const uint64_t chunks = by(WorkedBy::call, l.aged), bytes = by(WorkedBy::call, l.aged_bytes);
  const uint64_t chunks_behind = by(WorkedBy::background, l.aged);
  const uint64_t bytes_behind = by(WorkedBy::background, l.aged_bytes);
  writer.text(
      "cistern:   idle release   %lu chunks, %.1f MiB in calls of the program; %lu chunks, %.1f "
      "MiB in the background\n",
      chunks, mib(bytes), chunks_behind, mib(bytes_behind));
  writer.json(",\n     \"idle_release\": {");
  writer.numbers("\"calls\": {", "chunks bytes", "}", chunks, bytes);
  writer.numbers(", \"background\": {", "chunks bytes", "}}", chunks_behind, bytes_behind);
}

void write_put_off(Writer& writer, const Ledger& l) {
  const uint64_t calls = by(WorkedBy::call, l.deferred_done);
  const uint64_t behind = by(WorkedBy::background, l.deferred_done);
  writer.text(
      "cistern:   deferred frees done %lu times by allocations that missed, %lu times in the "
      "background\n",
      calls, behind);
  writer.numbers(",\n     \"put_off_frees\": {", "calls background", "}", calls, behind);
}

void write_scratch(Writer& writer, const Ledger& l) {
  const uint64_t hits = l.scratch_hits.get(), misses = l.scratch_misses.get();
  const uint64_t cached = l.scratch_bytes.get(), returned = l.scratch_released.get();
  writer.text(
      "cistern:   scratch        %lu of %lu stream-ordered allocations from the cache (%.1f %%), "
      "%.1f MiB cached, %lu blocks returned to the driver\n",
      hits, hits + misses, 100 * ratio(hits, hits + misses), mib(cached), returned);
  writer.numbers(",\n     \"scratch\": {", "hits misses cached_bytes returned", "}", hits, misses,
                 cached, returned);
}

void write_fill(Writer& writer, const Ledger& l) {
  const auto byte = static_cast<unsigned>(policy().fill_byte());
  writer.text(
      "cistern:   filled         %.1f MiB with byte 0x%02X in %lu fills, %lu waits; not filled: "
      "%lu during captures, %lu of another kind of memory, %lu failed\n",
      mib(l.fill_bytes.get()), byte, l.fills.get(), l.fill_waits.get(), l.fills_skipped.get(),
      l.fills_of_other_kind.get(), l.fills_failed.get());
  writer.numbers(",\n     \"fill\": {",
                 "byte fills bytes waits skipped_in_captures skipped_kinds failed", "}", byte,
                 l.fills.get(), l.fill_bytes.get(), l.fill_waits.get(), l.fills_skipped.get(),
                 l.fills_of_other_kind.get(), l.fills_failed.get());
}

void write_groups(Writer& writer, const Ledger& l) {
  writer.text(
      "cistern:   groups         %lu with %lu members side by side; %.1f MiB reserved for members "
      "that did not come\n",
      l.groups.get(), l.group_members.get(), mib(l.group_room.get()));
  writer.numbers(",\n     \"groups\": {", "made members unused_bytes", "}", l.groups.get(),
                 l.group_members.get(), l.group_room.get());
}

// The figures of a device that every report has. The text report prints them in other places.
void json_state(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  writer.numbers("     ", "quarantined_bytes quarantined_peak_bytes", ",\n",
                 device.usage.quarantined, l.quarantined_peak.get());
  writer.numbers("     ", "charged_bytes refused_by_limit", ",\n     \"by_kind\": {",
                 device.cap->charged(), l.refused_by_cap.get());
  for (size_t i = 0; i < std::size(kKindNames); ++i) {
    writer.json("%s\"%s\": ", i == 0 ? "" : ", ", kKindNames[i]);
    writer.numbers("{", "bytes peak_bytes", "}", taken(l, i), taken_peak(l, i));
  }
  writer.numbers(
      "},\n     ",
      "waits wait_ns held_back held_back_ns bound_gave_way shortages out_of_memory lost_chunks",
      ",\n", l.waits.get(), l.wait_ns.get(), l.held_back.get(), l.held_back_ns.get(),
      l.bound_gave_way.get(), l.shortages.get(), l.out_of_memory.get(), l.lost.get());
  writer.numbers("     ", "free_waits free_wait_ns passed_through kept_out_but_pooled", ",\n",
                 l.free_waits.get(), l.free_wait_ns.get(), l.unpooled.get(),
                 l.unpooled_short.get());
  writer.json("     \"strategy\": \"%s\", \"chunks\": %lu, \"shortages_ended_by\": {",
              alloc::strategy_name(device.strategy), l.chunks.get());
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.json("%s\"%s\": %lu", i == 0 ? "" : ", ", alloc::kStepNames[i], l.served_by[i].get());
  }
  writer.json("}");
}

void text_kinds(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  const alloc::Cap& cap = *device.cap;
  writer.text("cistern:   peak by kind  ");
  for (size_t i = 0; i < std::size(kKindNames); ++i) {
    writer.text("%s %s %.1f", i == 0 ? "" : ",", kKindNames[i], mib(taken_peak(l, i)));
  }
  writer.text(" MiB\n");
  if (cap.limit() == 0) return;
  writer.text("cistern:   limit          %.1f MiB, charged at exit %.1f MiB; %lu calls refused\n",
              mib(cap.limit()), mib(cap.charged()), l.refused_by_cap.get());
}

// How shortages ended, and the requests that settings kept out of the pools (CISTERN_ONLY_SIZES,
// CISTERN_POOL_FIRST).
void text_shortages(Writer& writer, const Ledger& l) {
  if (l.shortages.get() != 0) {
    writer.text("cistern:   shortages      ended by");
    for (int i = 0; i < alloc::kSteps; ++i) {
      writer.text("%s %s %lu", i == 0 ? "" : ",", alloc::kStepNames[i], l.served_by[i].get());
    }
    writer.text("\n");
  }
  if (!policy().chooses_requests()) return;
  writer.text("cistern:   not pooled     %lu allocations, because of the settings",
              l.unpooled.get());
  if (const uint64_t pooled = l.unpooled_short.get(); pooled != 0) {
    writer.text("; the pools served %lu more because no other memory was left", pooled);
  }
  writer.text("\n");
}

// The figures of json_state() as text.
void text_state(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  if (l.quarantined_peak.get() != 0) {
    writer.text(
        "cistern:   quarantined    %.1f MiB at exit, at most %.1f MiB: freed, but known outside "
        "the process\n",
        mib(device.usage.quarantined), mib(l.quarantined_peak.get()));
  }
  text_kinds(writer, device);
  writer.text(
      "cistern:   waits          %lu, %.3f ms; returned under pressure: %lu times; "
      "out of memory: %lu times\n",
      l.waits.get(), static_cast<double>(l.wait_ns.get()) / 1e6, l.shortages.get(),
      l.out_of_memory.get());
  if (const uint64_t times = l.bound_gave_way.get(); times != 0) {
    writer.text(
        "cistern:   no bound       %lu times more memory waited than allowed: no work ended for "
        "a second\n",
        times);
  }
  if (const uint64_t lost = l.lost.get(); lost != 0) {
    writer.text(
        "cistern:   not returned   %lu chunks or units: the driver refused to take them back\n",
        lost);
  }
  text_shortages(writer, l);
}

void write_sums(Writer& writer, const DeviceReport& device) {
  const Ledger& l = *device.ledger;
  const alloc::Usage& usage = device.usage;
  const double rate = ratio(hits(device), device.allocations);
  const double to_live = ratio(l.reserved_peak.get(), l.live_peak.get());
  writer.json("     \"allocations\": %lu, \"hits\": %lu, \"hit_rate\": %.4f,\n", device.allocations,
              hits(device), rate);
  writer.text("cistern:   driver calls   %lu allocating or freeing; %lu without Cistern\n",
              driver_calls(device), driver_calls_without(device));
  writer.numbers("     ", "driver_calls driver_calls_without", ",\n", driver_calls(device),
                 driver_calls_without(device));
  writer.text("cistern:   strategy       %s, %lu chunks, %.1f MiB\n",
              alloc::strategy_name(device.strategy), l.chunks.get(), mib(l.reserved.get()));
  writer.text("cistern:   served         %lu of %lu allocations from the pool (%.1f %%)\n",
              hits(device), device.allocations, 100 * rate);
  writer.text("cistern:   at peak        live %.1f MiB, reserved %.1f MiB, ratio %.3f\n",
              mib(l.live_peak.get()), mib(l.reserved_peak.get()), to_live);
  writer.json(
      "     \"live_peak_bytes\": %lu, \"reserved_peak_bytes\": %lu, \"reserved_to_live\": %.4f,\n",
      l.live_peak.get(), l.reserved_peak.get(), to_live);
  writer.text(
      "cistern:   at exit        live %.1f MiB, idle %.1f MiB, waiting %.1f MiB, parked for graphs "
      "%.1f MiB\n",
      mib(usage.live), mib(usage.idle), mib(usage.waiting), mib(usage.parked));
  writer.numbers(
      "     ",
      "live_bytes idle_bytes waiting_bytes live_and_waiting_peak_bytes parked_bytes reserved_bytes",
      ",\n", usage.live, usage.idle, usage.waiting, l.live_and_waiting_peak.get(), usage.parked,
      l.reserved.get());
}

}  // namespace

void write_device(Writer& writer, const DeviceReport& device, bool first) {
  const Ledger& l = *device.ledger;
  writer.text("cistern: device %d\n", device.ordinal);
  writer.json("%s\n    {\"device\": %d, \"total_bytes\": %lu, \"limit_bytes\": %lu,\n",
              first ? "" : ",", device.ordinal, device.total_bytes, device.cap->limit());
  write_sums(writer, device);
  json_state(writer, device);
  if (alloc::has_units(device.strategy)) write_units(writer, device);
  if (alloc::has_arenas(device.strategy)) write_arena(writer, device);
  if (policy().plan.value.mode != config::PlanMode::kOff) write_plan(writer, l);
  if (device.garbage != nullptr) write_garbage(writer, *device.garbage);
  text_state(writer, device);
  if (policy().free_idle_memory) write_idle(writer, l);
  if (!policy().eager_delete_scope) write_put_off(writer, l);
  if (policy().caches_scratch()) write_scratch(writer, l);
  if (policy().fill_byte() >= 0) write_fill(writer, l);
  if (alloc::group_rules(policy()).on) write_groups(writer, l);
  const uint64_t forgotten = l.sizes_forgotten.get();
  if (forgotten != 0) {
    writer.text(
        "cistern:   other sizes    %lu times freed memory served other sizes than its own because "
        "memory was short\n",
        forgotten);
  }
  if (policy().memory_optimize.set) writer.json(",\n     \"sizes_forgotten\": %lu", forgotten);
  writer.json("}");
}

}  // namespace cistern::shim
