#!/usr/bin/env bash
# After `cmake --install`, wherever the prefix is moved to, find_package(peelreduce) is all that a consumer needs.
set -euo pipefail
: "${SOURCE_DIR:=$(cd "$(dirname "$0")/.." && pwd)}"
: "${BUILD_DIR:=$SOURCE_DIR/build/release}"

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

cmake --install "$BUILD_DIR" --prefix "$scratch/first" >/dev/null
mv first prefix

mkdir consumer
cat >consumer/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
find_package(peelreduce 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE peelreduce::peelreduce)
if(TARGET peelreduce::cuda)
  add_executable(gpu_consumer gpu.cpp)
  target_link_libraries(gpu_consumer PRIVATE peelreduce::cuda)
endif()
END
cat >consumer/main.cpp <<'END'
#include <peel/peel.h>
int main() {
  std::vector<float> x(1000), sum(1000);
  x[7] = 0.5F;
  const auto plan = peel::Plan::make({.elements = x.size(), .expected_items = 1});
  peel::Message message(plan);
  peel::encode(plan, x, message);
  return peel::decode(plan, message, sum).lost != 0 || sum != x;
}
END
# No verb, since there may be no GPU: that it is found, compiled and linked is what is asked.
cat >consumer/gpu.cpp <<'END'
#include <peel/cuda.h>
int main(int count, char**) {
  const auto plan = peel::Plan::make({.elements = 1000});
  if (count > 1) peel::cuda::encode(plan, peel::ConstDense(), {}, {});
  peel::cuda::check(plan, {});
}
END

compiler="$(sed -n 's/^CMAKE_CXX_COMPILER:[^=]*=//p' "$BUILD_DIR/CMakeCache.txt")"
if ! {
  cmake -S consumer -B build -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" &&
    cmake --build build
} >log 2>&1; then
  cat log
  exit 1
fi
build/consumer
if [ -e prefix/include/peel/cuda.h ]; then build/gpu_consumer; fi

# Nothing of the build folder or of the sources may be left in what was installed as text.
if grep -rIlE -e "$BUILD_DIR" -e "$SOURCE_DIR" prefix; then
  echo "these installed files name the folder they were built in"
  exit 1
fi
if [ -e "$BUILD_DIR/peel" ]; then prefix/bin/peel --help >/dev/null; fi
