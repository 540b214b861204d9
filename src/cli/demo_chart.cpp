#include "cli/demo_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/numbers.h"

namespace peel::cli {
namespace {

// Lines differ in colour, dashes and marks, so that no eye depends on colour alone. The classes are in kStyle.
constexpr std::string_view kMarks[] = {"circle", "square", "diamond", "triangle", "cross", "plus"};

constexpr std::string_view kStyle = R"(
:root { --c0: #5b6675; --c1: #0b62c4; --c2: #b3470b; --c3: #0a7d52; --c4: #8a2a9c; --c5: #a3122f; }
@media (prefers-color-scheme: dark) { :root {
  --c0: #9aa6b5; --c1: #66b0ff; --c2: #ff9a5c; --c3: #4fd6a0; --c4: #d991ea; --c5: #ff7f96; } }
.chart svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); } .series { fill: none; stroke-width: 2.2; } .mark { stroke-width: 2; }
.s0 { stroke: var(--c0); stroke-dasharray: 7 4; } .s1 { stroke: var(--c1); }
.s2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.s3 { stroke: var(--c3); stroke-dasharray: 10 3 2 3; } .s4 { stroke: var(--c4); stroke-dasharray: 4 3; }
.s5 { stroke: var(--c5); } .mark { fill: var(--paper); stroke-dasharray: none; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0; margin: .5rem 0 0; }
.legend svg { width: 34px; height: 14px; vertical-align: middle; margin-right: .4rem; }
)";

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

// About as many units as a phone has pixels, so that text keeps its size there.
constexpr double kWidth = 420;
constexpr double kHeight = 300;
constexpr double kLeft = 56;
constexpr double kRight = 400;
constexpr double kTop = 10;
constexpr double kBottom = 250;

using Show = std::function<std::string(double)>;

std::string draw_mark(std::size_t series, Point at, const std::string& title) {
  const std::string_view shape = kMarks[series % std::size(kMarks)];
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
  return fmt::format("{} class='mark s{}'><title>{}</title></{}>\n", drawn, series, escape_html(title),
                     shape == "circle"   ? "circle"
                     : shape == "square" ? "rect"
                                         : "path");
}

// "100 ms" of "100.0 ms": powers of ten need no digits behind the point.
std::string without_zeros(std::string text) {
  const std::size_t point = text.find('.');
  if (point == std::string::npos) return text;
  const std::size_t end = text.find_first_not_of('0', point + 1);
  return text.erase(point, std::min(end, text.size()) - point);
}

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
                    kLeft, y.at(value), kRight, kLeft - 6, y.at(value) + 4, escape_html(without_zeros(show(value))));
  });
  return drawn +
         fmt::format("<text x='{}' y='{}' text-anchor='middle'>elements that are non-zero on some worker</text>\n",
                     (kLeft + kRight) / 2, kHeight - 8);
}

std::string draw_line(std::size_t index, const Series& series, const Axis& x, const Axis& y, const Show& show) {
  std::string path;
  std::string marks;
  for (const Point& point : series.points) {
    const Point at{x.at(point.x), y.at(point.y)};
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at.x, at.y);
    marks += draw_mark(index, at, fmt::format("{}, {}: {}", series.name, show_percent(point.x), show(point.y)));
  }
  return fmt::format("<path class='series s{}' d='{}'/>\n{}", index, path, marks);
}

}  // namespace

std::string escape_html(std::string_view text) {
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
      "<section class='chart'>\n<h2>{0}</h2>\n<svg viewBox='0 0 {1} {2}' role='img' aria-label='{0} by density, for "
      "each strategy; the numbers are in the table below'>\n{3}",
      escape_html(title), kWidth, kHeight, draw_axes(x, y, show));
  for (std::size_t i = 0; i < all.size(); ++i) drawn += draw_line(i, all[i], x, y, show);
  return drawn + "</svg>\n</section>\n";
}

std::string draw_legend(const std::vector<Series>& all) {
  std::string drawn = "<ul class='legend'>\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    drawn += fmt::format(
        "<li><svg viewBox='0 0 34 14' aria-hidden='true'><path class='series s{0}' d='M1 7h32'/>{1}</svg>{2}</li>\n", i,
        draw_mark(i, {17, 7}, all[i].name), escape_html(all[i].name));
  }
  return drawn + "</ul>\n";
}

std::string_view chart_style() noexcept { return kStyle; }

}  // namespace peel::cli
