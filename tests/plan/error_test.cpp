// Every error code has a name, and no two have the same.
#include "peel/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace peel::testing {
namespace {

TEST(ErrorCode, HasANameOfItsOwn) {
  constexpr ErrorCode kLast = ErrorCode::transport;
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(kLast); ++code) names.insert(name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kLast) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(name(ErrorCode::timeout), "timeout");
  EXPECT_EQ(name(ErrorCode::not_finite), "not_finite");
}

}  // namespace
}  // namespace peel::testing
