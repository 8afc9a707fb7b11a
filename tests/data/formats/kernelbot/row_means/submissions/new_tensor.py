import utils


def custom_kernel(data):
    assert callable(utils.close)
    x, _ = data
    return x.cumsum(1)[:, -1] * (1 / x.shape[1])
