// Memory of the library as tensors, without a copy: DLPack, which torch reads, so that no header of torch is needed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>

#include "peel/types.h"

namespace peel::python {

namespace nb = nanobind;
using Tensor = nb::ndarray<nb::pytorch, nb::device::cpu>;

inline nb::dlpack::dtype dlpack_type(ElementType type) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(type));
  const auto code = type == ElementType::bfloat16 ? nb::dlpack::dtype_code::Bfloat
                    : is_integer(type)            ? nb::dlpack::dtype_code::Int
                                                  : nb::dlpack::dtype_code::Float;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

// `owner` lives at least as long as the tensor.
inline Tensor tensor_over(const void* data, std::size_t bytes, ElementType type, nb::handle owner) {
  const std::size_t shape[] = {bytes / size_of(type)};
  return Tensor(const_cast<void*>(data), 1, shape, owner, nullptr, dlpack_type(type));
}
// The same of device memory.
using DeviceTensor = nb::ndarray<nb::pytorch>;
inline DeviceTensor device_tensor_over(const void* data, std::size_t bytes, ElementType type, int device,
                                       nb::handle owner) {
  const std::size_t shape[] = {bytes / size_of(type)};
  return DeviceTensor(const_cast<void*>(data), 1, shape, owner, nullptr, dlpack_type(type), nb::device::cuda::value,
                      device);
}
inline Tensor bytes_over(const void* data, std::size_t bytes, nb::handle owner) {
  const std::size_t shape[] = {bytes};
  return Tensor(const_cast<void*>(data), 1, shape, owner, nullptr, nb::dtype<std::uint8_t>());
}

}  // namespace peel::python
