// SPDX-License-Identifier: Apache-2.0
#include "shim/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "shim/context.h"
#include "shim/log.h"
#include "shim/process.h"
#include "shim/scratch.h"

namespace cistern::shim {
namespace {

using config::ReportFormat;

constinit ReportFormat format_ = ReportFormat::kNone;
constinit const char* file_ = nullptr;
constinit OwnFile output_{};

// Text in a fixed buffer; what does not fit is cut off.
class Writer {
 public:
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
    va_end(arguments);
    if (n > 0) length_ = std::min(length_ + static_cast<size_t>(n), sizeof text_ - 1);
  }

  // A JSON string: settings and device names are other people's text.
  void quoted(const char* text) {
    print("\"");
    for (; *text != '\0'; ++text) {
      if (*text == '"' || *text == '\\') print("\\");
      print(static_cast<unsigned char>(*text) < ' ' ? "\\u%04x" : "%c", *text);
    }
    print("\"");
  }

  void write_to(const OwnFile& file) const { file.write(text_, length_); }

 private:
  char text_[32 * 1024] = {};
  size_t length_ = 0;
};

constinit Writer writer{};

// One device's numbers at this moment.
struct Summary {
  uint64_t requests, hits;
  uint64_t driver_calls, driver_calls_without;
  alloc::Usage usage;
};

Summary summarise(int device) {
  Device& d = device_state(device);
  const alloc::Ledger& l = d.ledger;
  uint64_t allocations = d.past_allocations.get(), frees = d.past_frees.get();
  Summary s{};
  for_each_context([&](Context& c) {
    if (c.device != device) return;
    allocations += c.pool.allocations();
    frees += c.pool.frees();
    s.usage += c.pool.usage();
  });
  s.requests = allocations;
  s.hits = allocations > l.obtained.get() ? allocations - l.obtained.get() : 0;
  s.driver_calls = l.obtained.get() + l.refused.get() + l.released.get() + l.lost.get();
  s.driver_calls_without = allocations + frees;
  return s;
}

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

using ull = unsigned long long;

// What the process takes of a device, by kind; in the order of Held, after the pools.
constexpr const char* kKinds[] = {"pools",          "direct",   "arrays",
                                  "stream-ordered", "physical", "managed"};
static_assert(std::size(kKinds) == 1 + alloc::kHeldKinds);

uint64_t held(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved.get() : l.held[kind - 1].get();
}
uint64_t held_peak(const alloc::Ledger& l, size_t kind) {
  return kind == 0 ? l.reserved_peak.get() : l.held_peak[kind - 1].get();
}

void text_kinds(int device) {
  const alloc::Ledger& l = device_state(device).ledger;
  const alloc::Cap& cap = device_state(device).cap;
  writer.print("cistern:   peak by kind  ");
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    writer.print("%s %s %.1f", i == 0 ? "" : ",", kKinds[i], mib(held_peak(l, i)));
  }
  writer.print(" MiB\n");
  if (cap.limit() == 0) return;
  writer.print("cistern:   limit          %.1f MiB, charged at exit %.1f MiB; %llu calls refused\n",
               mib(cap.limit()), mib(cap.charged()), static_cast<ull>(l.refused_by_cap.get()));
}

void json_kinds(int device) {
  const alloc::Ledger& l = device_state(device).ledger;
  writer.print("     \"charged_bytes\": %llu, \"refused_by_limit\": %llu,\n     \"by_kind\": {",
               static_cast<ull>(device_state(device).cap.charged()),
               static_cast<ull>(l.refused_by_cap.get()));
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    writer.print("%s\"%s\": {\"bytes\": %llu, \"peak_bytes\": %llu}", i == 0 ? "" : ", ", kKinds[i],
                 static_cast<ull>(held(l, i)), static_cast<ull>(held_peak(l, i)));
  }
  writer.print("},\n");
}

void text_scratch(const alloc::Ledger& l) {
  const uint64_t hits = l.scratch_hits.get(), requests = hits + l.scratch_misses.get();
  writer.print(
      "cistern:   scratch        %llu of %llu stream-ordered allocations from the cache (%.1f %%), "
      "%.1f MiB cached, %llu blocks given back\n",
      static_cast<ull>(hits), static_cast<ull>(requests), 100 * ratio(hits, requests),
      mib(l.scratch_bytes.get()), static_cast<ull>(l.scratch_returned.get()));
}

void text_shortages(const alloc::Ledger& l) {
  writer.print("cistern:   shortages      ended by");
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.print("%s %s %llu", i == 0 ? "" : ",", alloc::kStepNames[i],
                 static_cast<ull>(l.served_by[i].get()));
  }
  writer.print("\n");
}

void text_device(int device) {
  const alloc::Ledger& l = device_state(device).ledger;
  const Summary s = summarise(device);
  writer.print("cistern: device %d\n", device);
  writer.print("cistern:   driver calls   %llu allocating or freeing; %llu without Cistern\n",
               static_cast<ull>(s.driver_calls), static_cast<ull>(s.driver_calls_without));
  writer.print("cistern:   strategy       %s, %llu chunks, %.1f MiB\n",
               alloc::strategy_name(device_state(device).strategy.load()),
               static_cast<ull>(l.chunks.get()), mib(l.reserved.get()));
  writer.print("cistern:   served         %llu of %llu allocations from the pool (%.1f %%)\n",
               static_cast<ull>(s.hits), static_cast<ull>(s.requests),
               100 * ratio(s.hits, s.requests));
  writer.print("cistern:   at peak        live %.1f MiB, reserved %.1f MiB, ratio %.3f\n",
               mib(l.live_peak.get()), mib(l.reserved_peak.get()),
               ratio(l.reserved_peak.get(), l.live_peak.get()));
  writer.print(
      "cistern:   at exit        live %.1f MiB, idle %.1f MiB, waiting %.1f MiB, parked for graphs "
      "%.1f MiB\n",
      mib(s.usage.live), mib(s.usage.idle), mib(s.usage.waiting), mib(s.usage.parked));
  if (l.quarantined_peak.get() != 0) {
    writer.print(
        "cistern:   quarantined    %.1f MiB at exit, at most %.1f MiB: freed, but known outside "
        "the "
        "process\n",
        mib(s.usage.quarantined), mib(l.quarantined_peak.get()));
  }
  text_kinds(device);
  writer.print(
      "cistern:   waits          %llu, %.3f ms; memory returned for want of it %llu "
      "times, out of memory %llu times\n",
      static_cast<ull>(l.waits.get()), static_cast<double>(l.wait_ns.get()) / 1e6,
      static_cast<ull>(l.shortages.get()), static_cast<ull>(l.out_of_memory.get()));
  if (l.shortages.get() != 0) text_shortages(l);
  if (scratch_on()) text_scratch(l);
}

void json_scratch(const alloc::Ledger& l) {
  writer.print(
      ",\n     \"scratch\": {\"hits\": %llu, \"misses\": %llu, \"cached_bytes\": %llu, "
      "\"returned\": %llu}",
      static_cast<ull>(l.scratch_hits.get()), static_cast<ull>(l.scratch_misses.get()),
      static_cast<ull>(l.scratch_bytes.get()), static_cast<ull>(l.scratch_returned.get()));
}

void json_strategy(int device) {
  const alloc::Ledger& l = device_state(device).ledger;
  writer.print("     \"strategy\": \"%s\", \"chunks\": %llu, \"shortages_ended_by\": {",
               alloc::strategy_name(device_state(device).strategy.load()),
               static_cast<ull>(l.chunks.get()));
  for (int i = 0; i < alloc::kSteps; ++i) {
    writer.print("%s\"%s\": %llu", i == 0 ? "" : ", ", alloc::kStepNames[i],
                 static_cast<ull>(l.served_by[i].get()));
  }
  writer.print("}");
}

void json_device(int device, bool first) {
  const alloc::Ledger& l = device_state(device).ledger;
  const Summary s = summarise(device);
  writer.print("%s\n    {\"device\": %d, \"total_bytes\": %llu, \"limit_bytes\": %llu,\n",
               first ? "" : ",", device,
               static_cast<ull>(device_state(device).total.load(std::memory_order_relaxed)),
               static_cast<ull>(device_state(device).cap.limit()));
  writer.print("     \"allocations\": %llu, \"hits\": %llu, \"hit_rate\": %.4f,\n",
               static_cast<ull>(s.requests), static_cast<ull>(s.hits), ratio(s.hits, s.requests));
  writer.print("     \"driver_calls\": %llu, \"driver_calls_without\": %llu,\n",
               static_cast<ull>(s.driver_calls), static_cast<ull>(s.driver_calls_without));
  writer.print(
      "     \"live_peak_bytes\": %llu, \"reserved_peak_bytes\": %llu, "
      "\"reserved_to_live\": %.4f,\n",
      static_cast<ull>(l.live_peak.get()), static_cast<ull>(l.reserved_peak.get()),
      ratio(l.reserved_peak.get(), l.live_peak.get()));
  writer.print(
      "     \"live_bytes\": %llu, \"idle_bytes\": %llu, \"waiting_bytes\": %llu, "
      "\"parked_bytes\": %llu, \"reserved_bytes\": %llu,\n",
      static_cast<ull>(s.usage.live), static_cast<ull>(s.usage.idle),
      static_cast<ull>(s.usage.waiting), static_cast<ull>(s.usage.parked),
      static_cast<ull>(l.reserved.get()));
  writer.print("     \"quarantined_bytes\": %llu, \"quarantined_peak_bytes\": %llu,\n",
               static_cast<ull>(s.usage.quarantined), static_cast<ull>(l.quarantined_peak.get()));
  json_kinds(device);
  writer.print(
      "     \"waits\": %llu, \"wait_ns\": %llu, \"shortages\": %llu, "
      "\"out_of_memory\": %llu, \"lost_chunks\": %llu,\n",
      static_cast<ull>(l.waits.get()), static_cast<ull>(l.wait_ns.get()),
      static_cast<ull>(l.shortages.get()), static_cast<ull>(l.out_of_memory.get()),
      static_cast<ull>(l.lost.get()));
  json_strategy(device);
  if (scratch_on()) json_scratch(l);
  writer.print("}");
}

template <typename Visitor>
void for_each_used_device(Visitor visit) {
  for (int i = 0; i < kMaxDevices; ++i) {
    if (device_state(i).used.load(std::memory_order_acquire)) visit(i);
  }
}

void compose_text() {
  writer.print("cistern: report of process %d, policy: %s\n", static_cast<int>(getpid()),
               policy_line());
  for_each_used_device(text_device);
  writer.print("cistern: events recorded %llu, queried %llu\n",
               static_cast<ull>(shared().reclaim.marks_made()),
               static_cast<ull>(shared().reclaim.queries_made()));
}

void compose_json() {
  writer.print("{\"cistern\": 1, \"pid\": %d, \"policy\": ", static_cast<int>(getpid()));
  writer.quoted(policy_line());
  writer.print(", \"events_recorded\": %llu, \"events_queried\": %llu,\n \"devices\": [",
               static_cast<ull>(shared().reclaim.marks_made()),
               static_cast<ull>(shared().reclaim.queries_made()));
  bool first = true;
  for_each_used_device([&](int device) {
    json_device(device, first);
    first = false;
  });
  writer.print("\n ]}\n");
}

}  // namespace

void open_report(ReportFormat format, const char* file) {
  format_ = format;
  file_ = file;
  if (format == ReportFormat::kNone || file != nullptr) return;
  output_.adopt(STDERR_FILENO);
}

void write_report() {
  if (format_ == ReportFormat::kNone) return;
  format_ == ReportFormat::kJson ? compose_json() : compose_text();
  if (file_ != nullptr && !output_.open(file_, O_TRUNC)) {
    log(config::LogLevel::kWarn,
        "the report cannot be written to %s: %s; check CISTERN_REPORT_FILE", file_,
        strerrordesc_np(errno));
  }
  writer.write_to(output_);
}

}  // namespace cistern::shim
