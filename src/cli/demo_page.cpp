#include "cli/demo_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>

#include "cli/numbers.h"

namespace peel::cli {
namespace {

// Lines differ in colour, dashes and marks, so that no eye depends on colour alone. The classes are in kStyle.
constexpr std::string_view kMarks[] = {"circle", "square", "diamond", "triangle", "cross", "plus"};

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d5dae1; --paper: #ffffff;
  --c0: #5b6675; --c1: #0b62c4; --c2: #b3470b; --c3: #0a7d52; --c4: #8a2a9c; --c5: #a3122f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #9aa6b5; --line: #343c47; --paper: #14181d;
  --c0: #9aa6b5; --c1: #66b0ff; --c2: #ff9a5c; --c3: #4fd6a0; --c4: #d991ea; --c5: #ff7f96; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.sub { color: var(--soft); margin-top: .3rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 13px; }
.grid { stroke: var(--line); } .series { fill: none; stroke-width: 2.2; } .mark { stroke-width: 2; }
.s0 { stroke: var(--c0); stroke-dasharray: 7 4; } .s1 { stroke: var(--c1); }
.s2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.s3 { stroke: var(--c3); stroke-dasharray: 10 3 2 3; } .s4 { stroke: var(--c4); stroke-dasharray: 4 3; }
.s5 { stroke: var(--c5); } .mark { fill: var(--paper); stroke-dasharray: none; } svg text.name { fill: var(--ink); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child, .left { text-align: left; }
)";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct Point {
  double x = 0;
  double y = 0;
};
struct Series {
  std::string name;
  std::vector<Point> points;  // by density
};

// A logarithmic axis from one power of ten to another, drawn from `start` to `end`.
class Axis {
 public:
  Axis(double lowest, double highest, double start, double end)
      : low_(std::floor(std::log10(lowest))),
        high_(std::max(low_ + 1, std::ceil(std::log10(highest)))),
        start_(start),
        end_(end) {}
  [[nodiscard]] double at(double value) const {
    return start_ + (std::log10(value) - low_) / (high_ - low_) * (end_ - start_);
  }
  void for_each_power(const std::function<void(double)>& visit) const {
    for (double power = low_; power <= high_; ++power) visit(std::pow(10, power));
  }

 private:
  double low_;
  double high_;
  double start_;
  double end_;
};

constexpr double kWidth = 860;
constexpr double kHeight = 380;
constexpr double kLeft = 80;
constexpr double kRight = 720;  // names stand behind it
constexpr double kTop = 16;
constexpr double kBottom = 330;

std::string draw_mark(std::string_view shape, Point at, std::size_t series, const std::string& title) {
  std::string drawn;
  if (shape == "circle") {
    drawn = fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4.5'", at.x, at.y);
  } else if (shape == "square") {
    drawn = fmt::format("<rect x='{:.1f}' y='{:.1f}' width='8' height='8'", at.x - 4, at.y - 4);
  } else {
    const std::string_view path = shape == "diamond"    ? "m0-6l6 6l-6 6l-6-6z"
                                  : shape == "triangle" ? "m0-6l6 10h-12z"
                                  : shape == "cross"    ? "m-4-4l8 8m0-8l-8 8"
                                                        : "m-5 0h10m-5-5v10";
    drawn = fmt::format("<path d='M{:.1f} {:.1f}{}'", at.x, at.y, path);
  }
  return fmt::format("{} class='mark s{}'><title>{}</title></{}>\n", drawn, series, escape(title),
                     shape == "circle"   ? "circle"
                     : shape == "square" ? "rect"
                                         : "path");
}

// Names at the ends of the lines, moved apart where they would overlap.
std::string draw_names(const std::vector<Series>& all, const std::vector<double>& ends) {
  constexpr double kApart = 16;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ends[a] < ends[b]; });
  std::string drawn;
  double free = kTop;
  for (const std::size_t i : order) {
    const double y = std::max(ends[i], free);
    free = y + kApart;
    drawn += fmt::format("<path class='series s{}' d='M{} {:.1f}h22'/>", i, kRight + 10, y);
    drawn += draw_mark(kMarks[i % std::size(kMarks)], {kRight + 21, y}, i, all[i].name);
    drawn += fmt::format("<text class='name' x='{}' y='{:.1f}'>{}</text>\n", kRight + 40, y + 4, escape(all[i].name));
  }
  return drawn;
}

using Show = std::function<std::string(double)>;

std::string draw_axes(const Axis& x, const Axis& y, const Show& show) {
  std::string drawn;
  x.for_each_power([&](double density) {
    drawn += fmt::format(
        "<path class='grid' d='M{0:.1f} {1}V{2}'/><text x='{0:.1f}' y='{3}' text-anchor='middle'>{4:g}%</text>\n",
        x.at(density), kTop, kBottom, kBottom + 20, density * 100);
  });
  y.for_each_power([&](double value) {
    drawn +=
        fmt::format("<path class='grid' d='M{0} {1:.1f}H{2}'/><text x='{3}' y='{4:.1f}' text-anchor='end'>{5}</text>\n",
                    kLeft, y.at(value), kRight, kLeft - 8, y.at(value) + 4, escape(show(value)));
  });
  return drawn + fmt::format("<text x='{}' y='{}' text-anchor='middle'>non-zero share of the union</text>\n",
                             (kLeft + kRight) / 2, kHeight - 8);
}

std::string draw_chart(const std::string& title, const std::vector<Series>& all, const Show& show) {
  std::vector<double> xs;
  std::vector<double> ys;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (xs.empty()) return "";
  const auto [first_x, last_x] = std::minmax_element(xs.begin(), xs.end());
  const auto [first_y, last_y] = std::minmax_element(ys.begin(), ys.end());
  const Axis x(*first_x, *last_x, kLeft, kRight);
  const Axis y(*first_y, *last_y, kBottom, kTop);
  std::string drawn = fmt::format(
      "<h2>{0}</h2>\n<svg viewBox='0 0 {1} {2}' role='img' aria-label='{0} by density, for each strategy; the numbers "
      "are "
      "in the table below'>\n",
      escape(title), kWidth, kHeight);
  drawn += draw_axes(x, y, show);
  std::vector<double> ends;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string path;
    std::string marks;
    for (const Point& point : all[i].points) {
      const Point at{x.at(point.x), y.at(point.y)};
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at.x, at.y);
      marks += draw_mark(kMarks[i % std::size(kMarks)], at, i,
                         fmt::format("{}, {}: {}", all[i].name, show_percent(point.x), show(point.y)));
    }
    drawn += fmt::format("<path class='series s{}' d='{}'/>\n{}", i, path, marks);
    ends.push_back(all[i].points.empty() ? kBottom : y.at(all[i].points.back().y));
  }
  return drawn + draw_names(all, ends) + "</svg>\n";
}

using Measure = double DemoResult::*;

// The baseline first, then the strategies in the order in which they were measured; only uniform supports, which alone
// are comparable from density to density.
std::vector<Series> series_of(const std::vector<DemoResult>& results, Measure own, Measure dense) {
  std::vector<Series> all{{.name = "dense", .points = {}}};
  for (const DemoResult& one : results) {
    if (one.pattern != "uniform" || one.strategy == "dense") continue;
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Series& series) { return series.name == one.strategy; });
    if (found == all.end()) found = all.insert(all.end(), {.name = one.strategy, .points = {}});
    found->points.push_back({one.density, one.*own});
    std::vector<Point>& base = all.front().points;
    if (base.empty() || base.back().x != one.density) base.push_back({one.density, one.*dense});
  }
  for (Series& series : all) {
    std::sort(series.points.begin(), series.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  }
  return all;
}

std::string draw_table(const std::vector<DemoResult>& results) {
  std::string rows;
  for (const DemoResult& one : results) {
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class='left'>{}</td><td class='left'>{}</td><td>{}</td><td>{}</td>"
        "<td>{:.1f}x</td><td>{}</td><td>{}</td><td class='left'>{}</td></tr>\n",
        escape(one.pattern), show_percent(one.density), escape(one.strategy), escape(one.chosen),
        show_seconds(one.seconds), show_seconds(one.baseline_seconds), one.baseline_seconds / one.seconds,
        show_bytes(static_cast<std::uint64_t>(one.bytes)), show_percent(one.bytes / one.dense_bytes),
        one.wrong == 0 && one.lost == 0 ? "exact" : fmt::format("{} wrong, {} lost", one.wrong, one.lost));
  }
  return "<h2>All numbers</h2>\n<div class='scroll'><table><thead><tr><th scope='col'>non-zeros</th>"
         "<th scope='col'>density</th><th scope='col' class='left'>strategy</th><th scope='col' "
         "class='left'>chosen</th>"
         "<th scope='col'>time</th><th scope='col'>dense</th><th scope='col'>speed-up</th><th scope='col'>bytes "
         "sent</th>"
         "<th scope='col'>of dense</th><th scope='col' class='left'>every sum</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>\n";
}

}  // namespace

std::string demo_page(const std::string& subtitle, const std::vector<DemoResult>& results) {
  const Show seconds = [](double value) { return show_seconds(value); };
  const Show bytes = [](double value) { return show_bytes(static_cast<std::uint64_t>(value)); };
  return fmt::format(
      "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>PeelReduce: demonstration</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<h1>All-reducing sparse gradients</h1>\n<p class='sub'>{}</p>\n"
      "{}{}{}</main>\n</body>\n</html>\n",
      kStyle, escape(subtitle),
      draw_chart("Time of one all-reduce", series_of(results, &DemoResult::seconds, &DemoResult::baseline_seconds),
                 seconds),
      draw_chart("Bytes that a worker sends", series_of(results, &DemoResult::bytes, &DemoResult::dense_bytes), bytes),
      draw_table(results));
}

}  // namespace peel::cli
