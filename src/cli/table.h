// Tables for people: columns of fixed widths, so that a row can be printed before the next one is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"

namespace peel::cli {

struct Column {
  enum class Side : std::uint8_t { left, right };

  std::string_view heading;
  std::size_t width = 0;
  Side side = Side::right;  // to which it is aligned: numbers to the right
};

struct Cell {
  Cell(std::string_view words, Ink colour = Ink::plain) : text(words), ink(colour) {}
  Cell(const std::string& words, Ink colour = Ink::plain) : text(words), ink(colour) {}
  Cell(const char* words, Ink colour = Ink::plain) : text(words), ink(colour) {}

  std::string text;
  Ink ink;
};

class Table {
 public:
  // Throws std::logic_error where the columns, with a blank between them, are wider than kColumns.
  Table(std::initializer_list<Column> columns);

  // Each ends with a newline. Words that are too long for their column are cut; numbers are never.
  [[nodiscard]] std::string heading() const;
  [[nodiscard]] std::string row(const std::vector<Cell>& cells) const;

 private:
  [[nodiscard]] std::string padded(const Column& column, const Cell& cell) const;

  std::vector<Column> columns_;
};

}  // namespace peel::cli
