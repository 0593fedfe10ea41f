// SPDX-License-Identifier: Apache-2.0
// The holders of memory: the part of the report that CISTERN_SITES adds.
#include "shim/process/report_writer.h"

namespace cistern::shim {
namespace {

using alloc::TallyBy;
using alloc::TallyOrder;

constexpr int kTextLines = 5, kJsonLines = 10;
constexpr size_t kNameBytes = 400;

constexpr struct {
  TallyBy by;
  const char* text;
  const char* key;
} kBys[] = {{TallyBy::site, "call site", "sites"}, {TallyBy::range, "range", "ranges"}};

constexpr struct {
  const char* text;
  const char* key;
} kOrders[alloc::kTallyOrders] = {{"live at the peak", "peak"},
                                  {"live at the end", "end"},
                                  {"temporary blocks", "temporary"},
                                  {"most allocations", "calls"},
                                  {"most bytes", "bytes"}};

void write_place(Writer& writer, uint32_t place) {
  place == alloc::kPinnedPlace ? writer.print("pinned memory") : writer.print("device %u", place);
}

// One figure of the list, as text.
void text_figure(Writer& writer, TallyOrder order, const alloc::Tally& tally) {
  switch (order) {
    case TallyOrder::peak:
      return writer.print("%10.1f MiB", mib(tally.peak_bytes));
    case TallyOrder::end:
      return writer.print("%10.1f MiB in %lu blocks", mib(tally.live_bytes), tally.live_blocks);
    case TallyOrder::temporary:
      return writer.print("%10lu of %lu", tally.temporary, tally.allocations);
    case TallyOrder::calls:
      return writer.print("%10lu", tally.allocations);
    case TallyOrder::bytes:
      return writer.print("%10.1f MiB", mib(tally.bytes));
  }
}

void text_stack(Writer& writer, const HoldersReport& holders, uint32_t site) {
  char level[kNameBytes];
  for (int i = 0; holders.level(site, i, level, sizeof level); ++i) {
    writer.print("cistern:                    ");
    writer.plain(level);
    writer.print("\n");
  }
}

void text_list(Writer& writer, const HoldersReport& holders, uint32_t place, TallyBy by,
               const char* by_text, int order) {
  Holder top[kTextLines];
  char name[kNameBytes];
  const auto kind = static_cast<TallyOrder>(order);
  const int count = holders.top(place, by, kind, top, kTextLines);
  if (count == 0 || (count == 1 && top[0].number == 0)) return;  // nothing is known
  writer.print("cistern:   %s, by %s\n", kOrders[order].text, by_text);
  for (int i = 0; i < count; ++i) {
    holders.name(by, top[i].number, name, sizeof name);
    writer.print("cistern:  ");
    text_figure(writer, kind, top[i].tally);
    writer.print("  ");
    writer.plain(name);
    writer.print("\n");
    if (by == TallyBy::site && kind == TallyOrder::end) {
      text_stack(writer, holders, top[i].number);
    }
  }
}

void json_holder(Writer& writer, const HoldersReport& holders, TallyBy by, const Holder& holder) {
  char text[kNameBytes];
  holders.name(by, holder.number, text, sizeof text);
  writer.print("{\"name\": ");
  writer.quoted(text);
  const alloc::Tally& t = holder.tally;
  writer.print(
      ", \"peak_bytes\": %lu, \"live_bytes\": %lu, \"live_blocks\": %lu, \"allocations\": %lu, "
      "\"bytes\": %lu, \"temporary\": %lu, \"within_phase\": %lu",
      t.peak_bytes, t.live_bytes, t.live_blocks, t.allocations, t.bytes, t.temporary,
      t.within_phase);
  if (by == TallyBy::site) {
    writer.print(", \"stack\": [");
    for (int i = 0; holders.level(holder.number, i, text, sizeof text); ++i) {
      if (i != 0) writer.print(", ");
      writer.quoted(text);
    }
    writer.print("]");
  }
  writer.print("}");
}

void json_list(Writer& writer, const HoldersReport& holders, uint32_t place, TallyBy by,
               int order) {
  Holder top[kJsonLines];
  const int count = holders.top(place, by, static_cast<TallyOrder>(order), top, kJsonLines);
  writer.json("%s\n    \"%s\": [", order == 0 ? "" : ",", kOrders[order].key);
  for (int i = 0; i < count; ++i) {
    writer.json("%s\n     ", i == 0 ? "" : ",");
    json_holder(writer, holders, by, top[i]);
  }
  writer.json("]");
}

template <typename Visitor>
void for_each_phase(const HoldersReport& holders, Visitor visit) {
  const char* name;
  alloc::Phases::Figures figures;
  for (uint32_t n = 1; holders.phase(n, &name, &figures); ++n) {
    if (figures.runs != 0) visit(name, figures);
  }
}

template <typename Visitor>
void for_each_place(const HoldersReport& holders, Visitor visit) {
  uint32_t place;
  alloc::Tally total;
  for (uint32_t from = 0; holders.next_place(from, &place, &total); from = place + 1) {
    visit(place, total);
  }
}

}  // namespace

void write_holders(Writer& writer, const HoldersReport& holders) {
  const char* between = "";
  writer.json("\n \"holders\": [");
  for_each_place(holders, [&](uint32_t place, const alloc::Tally& total) {
    writer.json("%s\n  {\"place\": \"", between);
    writer.text("cistern: who holds memory of ");
    write_place(writer, place);
    writer.text(": %.1f MiB at the peak, %.1f MiB in %lu blocks at the end, %lu allocations\n",
                mib(total.peak_bytes), mib(total.live_bytes), total.live_blocks, total.allocations);
    writer.json("\", \"peak_bytes\": %lu, \"live_bytes\": %lu, \"allocations\": %lu",
                total.peak_bytes, total.live_bytes, total.allocations);
    for (const auto& [by, text, key] : kBys) {
      writer.json(",\n   \"%s\": {", key);
      for (int order = 0; order < alloc::kTallyOrders; ++order) {
        writer.json() ? json_list(writer, holders, place, by, order)
                      : text_list(writer, holders, place, by, text, order);
      }
      writer.json("}");
    }
    writer.json("}");
    between = ",";
  });
  writer.json("\n ],\n \"phases\": [");
  between = "";
  for_each_phase(holders, [&](const char* name, const alloc::Phases::Figures& figures) {
    writer.json("%s\n  {\"name\": ", between);
    writer.text("cistern: phase ");
    writer.plain(name);
    writer.quoted(name);
    writer.text(": %u runs, peak %.1f MiB, of the last %.1f MiB, %lu allocations\n", figures.runs,
                mib(figures.peak_bytes), mib(figures.last_peak_bytes), figures.allocations);
    writer.numbers(", ", "runs peak_bytes last_peak_bytes allocations", "}", figures.runs,
                   figures.peak_bytes, figures.last_peak_bytes, figures.allocations);
    between = ",";
  });
  writer.json("\n ],");
}

}  // namespace cistern::shim
