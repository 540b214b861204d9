// A chart of the demonstration as SVG: lines over density on logarithmic axes, small enough to be read on a phone.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace peel::cli {

struct Point {
  double x = 0;
  double y = 0;
};
struct Series {
  std::string name;
  std::vector<Point> points;  // by density
};

std::string escape_html(std::string_view text);

// With a heading. `show` writes a value of the other axis.
std::string draw_chart(const std::string& title, const std::vector<Series>& all,
                       const std::function<std::string(double)>& show);

// Which line is which, for charts of the same series.
std::string draw_legend(const std::vector<Series>& all);

// Of both, for the page's style sheet.
std::string_view chart_style() noexcept;

}  // namespace peel::cli
