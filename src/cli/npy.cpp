#include "cli/npy.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "cli/failure.h"
#include "cli/files.h"

namespace peel::cli::npy {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read and written as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 20;  // NumPy itself refuses more than 10,000
constexpr std::size_t kMaxDimensions = 64;                    // NumPy's own limit
constexpr std::size_t kAlignment = 64;                        // of the data in the file

struct Kind {
  std::string_view code;
  ElementType type;
  bool is_mask = false;
};
constexpr std::array kKinds = {
    Kind{"f4", ElementType::float32}, Kind{"f8", ElementType::float64},    Kind{"f2", ElementType::float16},
    Kind{"i1", ElementType::int8},    Kind{"i2", ElementType::int16},      Kind{"i4", ElementType::int32},
    Kind{"i8", ElementType::int64},   Kind{"b1", ElementType::int8, true},
};

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& label) : rest_(text), label_(label) {}

  Header parse() {
    Header header;
    unsigned seen = 0;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        header.descr = quoted();
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = tuple();
        seen |= 4;
      } else {
        fail();
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (seen != 7 || !rest_.empty()) fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    throw Failure(fmt::format("{}: the header is not that of a plain array; save it again with numpy.save", label_));
  }
  void skip_space() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != std::string_view::npos) {
      rest_.remove_prefix(1);
    }
  }
  bool accept(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail();
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::string quoted() {
    const char quote = accept('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail();
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) fail();
    return false;
  }
  std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      const auto digit = static_cast<std::uint64_t>(rest_[digits] - '0');
      if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) fail();
      value = value * 10 + digit;
    }
    if (digits == 0) fail();
    rest_.remove_prefix(digits);
    accept('L');  // Python 2 wrote long integers so
    return value;
  }
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (!accept(')')) {
      if (values.size() == kMaxDimensions) fail();
      values.push_back(number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view rest_;
  const std::string& label_;
};

Header read_header(Input& input) {
  std::array<unsigned char, 8> start{};
  const std::size_t got = input.read(std::as_writable_bytes(std::span(start)));
  if (got < start.size() || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
    throw Failure(fmt::format("{} is not a .npy file; save the array with numpy.save", input.label()));
  }
  const unsigned version = start[6];
  if (version < 1 || version > 3) {
    throw Failure(fmt::format("{} has .npy version {}, and only 1 to 3 are known; save it again with numpy.save",
                              input.label(), version));
  }
  Buffer<std::byte> length_bytes;
  input.append(length_bytes, version == 1 ? 2 : 4);
  std::uint32_t length = 0;
  std::memcpy(&length, length_bytes.data(), length_bytes.size());
  if (length > kMaxHeader) {
    throw Failure(fmt::format("{}: a header of {} bytes is not that of a plain array", input.label(), length));
  }
  Buffer<std::byte> text;
  input.append(text, length);
  return HeaderParser({reinterpret_cast<const char*>(text.data()), text.size()}, input.label()).parse();
}

Kind kind_of(const Header& header, std::optional<ElementType> raw, const std::string& label) {
  const std::string_view descr = header.descr;
  const std::string_view code = descr.substr(descr.empty() ? 0 : 1);
  if (code == "V2") {
    if (raw == ElementType::bfloat16 || raw == ElementType::float16) return {code, *raw};
    throw Failure(
        fmt::format("{} holds two raw bytes per element; say --type bfloat16 if that is what they are", label));
  }
  for (const Kind& kind : kKinds) {
    if (kind.code != code) continue;
    const bool one_byte = size_of(kind.type) == 1;
    if (descr.front() == '<' || descr.front() == '=' || (one_byte && descr.front() == '|')) return kind;
    throw Failure(fmt::format("{} is big-endian ('{}'); save x.astype(x.dtype.newbyteorder('<'))", label, descr));
  }
  throw Failure(fmt::format("{} has elements of type '{}'; gradients are f2, f4, f8, i1, i2, i4 or i8, masks are bool",
                            label, descr));
}

std::uint64_t elements_of(const Header& header, std::size_t element_bytes, const std::string& label) {
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max() / element_bytes;
  std::uint64_t size = 1;
  bool empty = false;
  for (const std::uint64_t extent : header.shape) {
    empty |= extent == 0;
    if (extent != 0 && size > limit / extent) throw Failure(fmt::format("{}: the shape is impossibly large", label));
    if (extent != 0) size *= extent;
  }
  return empty ? 0 : size;
}

// Fortran order lets the first index run fastest, C order the last.
Buffer<std::byte> to_c_order(const Buffer<std::byte>& from, const std::vector<std::uint64_t>& shape,
                             std::size_t element_bytes) {
  std::vector<std::uint64_t> stride(shape.size(), element_bytes);
  for (std::size_t d = 1; d < shape.size(); ++d) stride[d] = stride[d - 1] * shape[d - 1];
  Buffer<std::byte> to(from.size());
  std::vector<std::uint64_t> at(shape.size(), 0);
  std::uint64_t source = 0;
  for (std::size_t target = 0; target < to.size(); target += element_bytes) {
    std::memcpy(to.data() + target, from.data() + source, element_bytes);
    for (std::size_t d = shape.size(); d-- > 0;) {
      source += stride[d];
      if (++at[d] < shape[d]) break;
      source -= stride[d] * shape[d];
      at[d] = 0;
    }
  }
  return to;
}

std::string_view descr_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return "<f4";
    case ElementType::float64:
      return "<f8";
    case ElementType::float16:
      return "<f2";
    case ElementType::bfloat16:
      return "<V2";
    case ElementType::int8:
      return "|i1";
    case ElementType::int16:
      return "<i2";
    case ElementType::int32:
      return "<i4";
    case ElementType::int64:
      return "<i8";
  }
  throw Failure("an element type without a .npy form");
}

std::string header_for(ConstDense x) {
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr_of(x.type), x.size);
  const std::size_t before = kMagic.size() + 2 + 2;
  text.append(kAlignment - 1 - (before + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

Array load(const std::string& path, std::optional<ElementType> raw, const Moved& moved) {
  Input input(path);
  const Header header = read_header(input);
  const Kind kind = kind_of(header, raw, input.label());
  const std::size_t element_bytes = size_of(kind.type);
  Array array{.is_mask = kind.is_mask, .type = kind.type, .shape = header.shape, .size = 0, .data = {}};
  array.size = elements_of(header, element_bytes, input.label());
  input.append(array.data, array.size * element_bytes, moved);
  input.expect_end();
  if (header.fortran_order && header.shape.size() > 1) {
    array.data = to_c_order(array.data, header.shape, element_bytes);
  }
  return array;
}

void write(Output& output, ConstDense x, const Moved& moved) {
  const std::string header = header_for(x);
  output.write(std::as_bytes(std::span(header)));
  output.write({static_cast<const std::byte*>(x.data), static_cast<std::size_t>(x.size * size_of(x.type))}, moved);
}

void save(const std::string& path, ConstDense x) {
  Output output(path, {.force = true});
  write(output, x);
  output.commit();
}

}  // namespace peel::cli::npy
