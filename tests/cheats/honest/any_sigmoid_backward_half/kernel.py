import torch


def sigmoid_backward__default_kernel_impl(grad_output, output):
    return grad_output * (1 - output) * output
