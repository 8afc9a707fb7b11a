#include <torch/extension.h>

torch::Tensor backward(torch::Tensor x) {
  return x;  // To be found, not to be built.
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("backward", &backward); }
