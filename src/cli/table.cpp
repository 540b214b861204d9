#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace peel::cli {

Table::Table(std::initializer_list<Column> columns) : columns_(columns) {
  std::size_t width = columns_.size() - 1;
  for (const Column& column : columns_) width += column.width;
  if (width > kColumns) throw std::logic_error(fmt::format("a table is {} columns wide", width));
}

std::string Table::padded(const Column& column, const Cell& cell) const {
  const bool left = column.side == Column::Side::left;
  const std::string text = left ? shortened(cell.text, column.width) : cell.text;
  const std::string blanks(column.width - std::min(column.width, text.size()), ' ');
  return left ? inked(cell.ink, text) + blanks : blanks + inked(cell.ink, text);
}

std::string Table::heading() const {
  std::vector<Cell> cells;
  for (const Column& column : columns_) cells.emplace_back(column.heading, Ink::heading);
  return row(cells);
}

std::string Table::row(const std::vector<Cell>& cells) const {
  if (cells.size() != columns_.size()) throw std::logic_error("a row has as many cells as its table has columns");
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line.append(i == 0 ? "" : " ").append(padded(columns_[i], cells[i]));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace peel::cli
