#!POPCORN leaderboard row_means
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, means = data
    means[...] = (x / x.shape[1]).sum(1)
    return means
