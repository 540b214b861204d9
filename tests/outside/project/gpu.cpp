// No verb is called unless told so, since there may be no GPU: that it is found, compiled and linked is what is asked.
#include <peel/cuda.h>

int main(int count, char**) {
  const auto plan = peel::Plan::make({.elements = 1000});
  if (count > 1) peel::cuda::encode(plan, peel::ConstDense(), {}, {});
  peel::cuda::check(plan, {});
}
