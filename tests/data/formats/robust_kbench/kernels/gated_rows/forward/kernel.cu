#include <torch/extension.h>

torch::Tensor forward(torch::Tensor x, torch::Tensor gate, torch::Tensor shift, double slope) {
  return x;  // To be found, not to be built.
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
