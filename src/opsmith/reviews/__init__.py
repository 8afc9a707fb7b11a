"""Reviews: what people say of kernels, and which kernels they approved."""
