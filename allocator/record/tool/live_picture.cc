// SPDX-License-Identifier: Apache-2.0
// The picture of live memory over time: an area for each of the sites that hold most at the peak,
// or of the sizes where a recording has no sites, and one for all others. However long the
// recording is, it has kColumns moments: of each stretch of time the one at which most was live.
#include <cinttypes>
#include <unordered_map>

#include "allocator/record/tool/analysis.h"
#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

constexpr size_t kColumns = 600, kMostAreas = 32, kMostLabel = 60;
constexpr double kLeft = 90, kTop = 40, kWidth = 900, kHeight = 500;  // of the areas
constexpr double kLegend = 18;                                        // a line of it

struct Moment {
  bool known = false;
  uint64_t total = 0;
  std::array<uint64_t, kMostAreas + 1> live{};  // by area; the last one in use is the others'
};

struct Drawing {
  uint32_t place = 0;
  bool by_site = false;
  std::vector<uint64_t> numbers;  // of the areas: sites, or sizes
  std::vector<Moment> moments{kColumns};
  uint64_t from_ns = 0, to_ns = 0, peak_ns = 0, peak = 0;

  size_t others() const { return numbers.size(); }
  uint64_t number_of(const Event& event) const { return by_site ? event.site : event.bytes; }
};

// The place in which most was live at once.
uint32_t fullest_place(const Selection& selection) {
  std::array<uint64_t, kPlaces> live{}, most{};
  for (const Step& step : selection.lives.steps) {
    if (!selection.has(step.block) || !selection.in_time(step.event)) continue;
    const Event block = selection.recording.events[selection.lives.blocks[step.block].allocated];
    uint64_t& now = live[place_of(block)];
    selection.lives.begins(step) ? now += block.bytes : now -= block.bytes;
    most[place_of(block)] = std::max(most[place_of(block)], now);
  }
  return static_cast<uint32_t>(std::ranges::max_element(most) - most.begin());
}

void choose_areas(const Selection& selection, Drawing* out) {
  const Ranking ranking(selection, [&](const Event& event) { return out->number_of(event); });
  const size_t most = std::min<uint64_t>(selection.options.top, kMostAreas);
  for (const Row* row : ranking.rows(out->place, Sort::peak)) {
    if (out->numbers.size() == most) break;
    out->numbers.push_back(row->number);
  }
}

// visit(block, begins, time) of what is drawn.
template <typename Visitor>
void for_each_step(const Selection& selection, uint32_t place, Visitor visit) {
  const Events& events = selection.recording.events;
  for (const Step& step : selection.lives.steps) {
    if (!selection.has(step.block) || !selection.in_time(step.event)) continue;
    const Event block = events[selection.lives.blocks[step.block].allocated];
    if (place_of(block) == place) {
      visit(block, selection.lives.begins(step), events.time_ns(step.event));
    }
  }
}

void see_moments(const Selection& selection, Drawing* out) {
  std::unordered_map<uint64_t, size_t> area_of;
  for (size_t i = 0; i < out->numbers.size(); ++i) area_of[out->numbers[i]] = i;
  bool any = false;
  for_each_step(selection, out->place, [&](const Event&, bool, uint64_t time) {
    if (!any) out->from_ns = time;
    any = true;
    out->to_ns = time;
  });
  const double span = static_cast<double>(std::max<uint64_t>(out->to_ns - out->from_ns, 1));
  Moment now;
  now.known = true;
  size_t last = 0;
  for_each_step(selection, out->place, [&](const Event& block, bool begins, uint64_t time) {
    const auto column = static_cast<size_t>(static_cast<double>(time - out->from_ns) / span *
                                            static_cast<double>(kColumns - 1));
    // What was live before the first event of a column was live in the ones that had none.
    for (; last < column; ++last) {
      if (!out->moments[last + 1].known) out->moments[last + 1] = now;
    }
    const auto found = area_of.find(out->number_of(block));
    uint64_t& live = now.live[found == area_of.end() ? out->others() : found->second];
    begins ? live += block.bytes : live -= block.bytes;
    begins ? now.total += block.bytes : now.total -= block.bytes;
    Moment& moment = out->moments[column];
    if (!moment.known || now.total >= moment.total) moment = now;
    if (now.total <= out->peak) return;
    out->peak = now.total;
    out->peak_ns = time;
  });
}

std::string label_of_area(const Selection& selection, const Drawing& drawing, size_t area) {
  if (area == drawing.others()) return "all others";
  const uint64_t number = drawing.numbers[area];
  if (!drawing.by_site) return "blocks of " + std::to_string(number) + " bytes";
  std::string label = site_text(selection.recording, static_cast<uint32_t>(number));
  if (label.size() <= kMostLabel) return label;
  label.resize(kMostLabel);  // of a character that is cut, the filter leaves nothing
  return label + "...";
}

double across(size_t column) {
  return kLeft + kWidth * static_cast<double>(column) / static_cast<double>(kColumns - 1);
}

// From below to above, each area between what is below it and that with it.
void draw_areas(const Drawing& drawing, double scale, std::string& text) {
  std::vector<uint64_t> below(kColumns);
  for (size_t area = 0; area <= drawing.others(); ++area) {
    text += "<path d=\"M";
    const std::vector<uint64_t> lower = below;
    for (size_t i = 0; i < kColumns; ++i) below[i] += drawing.moments[i].live[area];
    for (size_t i = 0; i < kColumns; ++i) {
      append(text, "%.1f %.1f ", across(i), kTop + kHeight - static_cast<double>(below[i]) * scale);
    }
    for (size_t i = kColumns; i-- > 0;) {
      append(text, "%.1f %.1f ", across(i), kTop + kHeight - static_cast<double>(lower[i]) * scale);
    }
    append(text, "Z\" fill=\"hsl(%zu,60%%,%d%%)\"/>\n", area * 137 % 360,
           area == drawing.others() ? 85 : 65);
  }
}

void draw_axes(const Drawing& drawing, double scale, std::string& text) {
  append(text, "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"black\"/>\n", kLeft, kTop,
         kTop + kHeight, kLeft + kWidth);
  constexpr int kMarks = 4;
  for (int i = 0; i <= kMarks; ++i) {
    const double part = static_cast<double>(i) / kMarks;
    const auto bytes = static_cast<uint64_t>(part * static_cast<double>(drawing.peak));
    append(text, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", kLeft - 6,
           kTop + kHeight - static_cast<double>(bytes) * scale + 4, mib(bytes).c_str());
    const double time = seconds(drawing.from_ns) + part * seconds(drawing.to_ns - drawing.from_ns);
    append(text, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.3f s</text>\n",
           kLeft + part * kWidth, kTop + kHeight + 18, time);
  }
}

void mark_peak(const Drawing& drawing, std::string& text) {
  const double span = static_cast<double>(std::max<uint64_t>(drawing.to_ns - drawing.from_ns, 1));
  const double x = kLeft + kWidth * static_cast<double>(drawing.peak_ns - drawing.from_ns) / span;
  append(text, "<path d=\"M%.1f %gV%g\" stroke=\"red\" stroke-dasharray=\"4\"/>\n", x, kTop - 4,
         kTop + kHeight);
  append(text, "<text x=\"%.1f\" y=\"%g\" fill=\"red\" text-anchor=\"%s\">", x, kTop - 8,
         x > kLeft + kWidth / 2 ? "end" : "start");
  append(text, "peak %s at %.3f s</text>\n", mib(drawing.peak).c_str(), seconds(drawing.peak_ns));
}

void draw_legend(const Selection& selection, const Drawing& drawing, std::string& text) {
  double y = kTop + kHeight + 44;
  for (size_t area = drawing.others() + 1; area-- > 0; y += kLegend) {
    append(text, "<rect x=\"%g\" y=\"%g\" width=\"12\" height=\"12\" ", kLeft, y - 10);
    append(text, "fill=\"hsl(%zu,60%%,%d%%)\"/>", area * 137 % 360,
           area == drawing.others() ? 85 : 65);
    append(text, "<text x=\"%g\" y=\"%g\">", kLeft + 20, y);
    text += xml(label_of_area(selection, drawing, area)) + "</text>\n";
  }
}

}  // namespace

std::string live_picture(const Selection& selection) {
  Drawing drawing;
  drawing.place = fullest_place(selection);
  drawing.by_site = (selection.recording.head.flags & kRecordingHasSites) != 0;
  choose_areas(selection, &drawing);
  see_moments(selection, &drawing);
  const double lines = static_cast<double>(drawing.others() + 1);
  std::string text = begin_picture(kLeft + kWidth + 30, kTop + kHeight + 50 + lines * kLegend);
  text += "<g font-family=\"sans-serif\" font-size=\"12\">\n";
  append(text, "<text x=\"%g\" y=\"16\" font-size=\"14\">live memory of %s by %s: ", kLeft,
         place_text(drawing.place).c_str(), drawing.by_site ? "call site" : "size");
  const std::string program(selection.recording.head.program);
  text += xml(std::string_view(program).substr(0, kMostLabel)) + "</text>\n";
  const double scale = kHeight / static_cast<double>(std::max<uint64_t>(drawing.peak, 1));
  draw_areas(drawing, scale, text);
  draw_axes(drawing, scale, text);
  mark_peak(drawing, text);
  draw_legend(selection, drawing, text);
  return text + "</g>\n</svg>\n";
}

}  // namespace cistern::alloc::tool
