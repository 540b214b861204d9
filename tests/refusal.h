// What a refusal must look like: peel::Error with the right code, and a sentence that a person can act on.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <utility>

#include "peel/error.h"

namespace peel::testing {

inline void expect_sentence(const std::string& what, const std::string& fragment) {
  EXPECT_NE(what.find(fragment), std::string::npos) << "\"" << what << "\" does not speak of \"" << fragment << "\"";
  ASSERT_GE(what.size(), 20u) << what;
  EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(what.front())) != 0) << what;
  EXPECT_EQ(what.back(), '.') << what;
}

// `call` throws peel::Error with this code, and its sentence contains `fragment`.
template <typename Call>
void expect_refusal(ErrorCode code, const std::string& fragment, Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    expect_sentence(error.what(), fragment);
    return;
  }
  ADD_FAILURE() << "nothing was refused; expected a sentence with \"" << fragment << "\"";
}

}  // namespace peel::testing
