// The demonstration as a web page of one file: the headline, a chart of time and one of bytes by density, the numbers,
// what was measured, and what the words mean. It loads nothing, works without scripts, follows the reader's choice of
// light or dark, and can be read on a phone.
#pragma once

#include <string>
#include <vector>

#include "cli/demo_story.h"

namespace peel::cli {

std::string demo_page(const DemoStory& story, const std::vector<DemoResult>& results);

}  // namespace peel::cli
