#include "cli/demo_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "cli/demo_chart.h"
#include "cli/numbers.h"

namespace peel::cli {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d5dae1; --paper: #ffffff; --tile: #f1f4f8;
  --good: #0a7d52; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #9aa6b5; --line: #343c47; --paper: #14181d;
  --tile: #1d232b; --good: #4fd6a0; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1.5rem auto;
  max-width: 66rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.1rem; color: var(--soft); margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .4rem; }
p.headline { font-size: clamp(1.15rem, .9rem + 1.4vw, 1.6rem); line-height: 1.35; font-weight: 600; margin: .4rem 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(6.2rem, 1fr)); gap: .6rem; padding: 0; margin: 0;
  list-style: none; }
.tiles li { background: var(--tile); border-radius: .5rem; padding: .5rem .7rem; color: var(--soft); font-size: .85rem; }
.tiles b { display: block; font-size: 1.4rem; color: var(--good); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child, .left { text-align: left; }
th, td { overflow-wrap: normal; white-space: nowrap; } td:first-child, td:last-child, th { white-space: normal; }
tbody th { padding-top: 1rem; color: var(--ink); } tbody th span { color: var(--soft); font-weight: 400; }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0; color: var(--soft); }
code { font-size: .92em; background: var(--tile); border-radius: .25rem; padding: .1rem .3rem; }
ul.plain { padding-left: 1.1rem; margin: .3rem 0; }
@media (max-width: 40rem) { table { font-size: .75rem; } th, td { padding: .3rem .15rem; }
  td:last-child { padding-left: .4rem; } }
@media (min-width: 60rem) { dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
  dl.next { grid-template-columns: 1fr; gap: 0; } dt { margin-top: 0; } dl.next dt { margin-top: .5rem; } }
)";

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

std::string draw_charts(const std::vector<DemoResult>& results) {
  const std::vector<Series> times = series_of(results, &DemoResult::seconds, &DemoResult::baseline_seconds);
  const std::vector<Series> bytes = series_of(results, &DemoResult::bytes, &DemoResult::dense_bytes);
  if (times.size() == 1) return "";  // nothing but rows or files
  const auto show_size = [](double value) { return show_bytes(static_cast<std::uint64_t>(value)); };
  return fmt::format("<div class='charts'>\n{}{}</div>\n{}", draw_chart("Time of one all-reduce", times, show_seconds),
                     draw_chart("Bytes that a worker sends", bytes, show_size), draw_legend(times));
}

// What a user gets who chooses nothing, where it pays and where it does not.
std::string draw_tiles(const std::vector<DemoResult>& results) {
  std::string tiles;
  for (const DemoResult& one : results) {
    if (one.strategy != "auto" || !one.right() || one.beats_link()) continue;
    tiles += fmt::format("<li><b>{:.1f}x</b>as fast, {}</li>\n", one.speedup(), escape_html(title_of(one)));
  }
  return tiles.empty() ? "" : "<ul class='tiles'>\n" + tiles + "</ul>\n";
}

// What is known of every element, with numbers that no line end divides.
std::string draw_verdict(const DemoResult& result) {
  std::string drawn;
  for (const char c : escape_html(verdict_of(result))) drawn += c == '-' ? std::string("&#8209;") : std::string(1, c);
  return drawn;
}

std::string draw_table(const std::vector<DemoResult>& results) {
  std::string rows;
  std::string title;
  for (const DemoResult& one : results) {
    if (title != title_of(one)) {
      title = title_of(one);
      rows += fmt::format("<tr><th colspan='6' scope='colgroup'>{} <span>(dense: {}, {} bytes)</span></th></tr>\n",
                          escape_html(title), show_seconds(one.baseline_seconds),
                          show_bytes(static_cast<std::uint64_t>(one.dense_bytes)));
    }
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{:.1f}x</td><td>{}</td><td>{}</td><td class='left'>{}</td></tr>\n",
                    escape_html(strategy_of(one)), show_seconds(one.seconds), one.speedup(),
                    show_bytes(static_cast<std::uint64_t>(one.bytes)), show_percent(one.bytes / one.dense_bytes),
                    draw_verdict(one));
  }
  return "<h2>All numbers</h2>\n<table><thead><tr><th scope='col'>strategy</th><th scope='col'>time</th>"
         "<th scope='col'>speed-up</th><th scope='col'>bytes</th><th scope='col'>of dense</th>"
         "<th scope='col' class='left'>every element</th></tr></thead><tbody>\n" +
         rows + "</tbody></table>\n";
}

std::string draw_sentences(const std::vector<std::string>& sentences) {
  std::string items;
  for (const std::string& sentence : sentences) items += fmt::format("<li>{}</li>\n", escape_html(sentence));
  return "<h2>What was measured</h2>\n<ul class='plain'>\n" + items + "</ul>\n";
}

std::string draw_terms(std::string_view title, std::string_view kind, const std::vector<Term>& terms) {
  std::string items;
  for (const Term& term : terms) {
    const std::string word = escape_html(term.word);
    items += fmt::format("<dt>{}</dt><dd>{}</dd>\n", kind == "next" ? "<code>" + word + "</code>" : word,
                         escape_html(term.meaning));
  }
  return fmt::format("<h2>{}</h2>\n<dl class='{}'>\n{}</dl>\n", title, kind, items);
}

}  // namespace

std::string demo_page(const DemoStory& story, const std::vector<DemoResult>& results) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>PeelReduce: demonstration</title>\n"
      "<style>{}{}</style>\n</head>\n<body>\n<main>\n<h1>PeelReduce all-reduces sparse gradients</h1>\n"
      "<p class='headline'>{}</p>\n{}{}{}{}{}{}</main>\n</body>\n</html>\n",
      kStyle, chart_style(), escape_html(story.headline), draw_tiles(results), draw_charts(results),
      draw_sentences(story.setting), draw_table(results), draw_terms("Words", "words", story.words),
      draw_terms("Next", "next", story.next));
}

}  // namespace peel::cli
