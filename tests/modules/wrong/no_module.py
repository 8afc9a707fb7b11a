"""A function where a class is asked for."""


def ModelNew(features_in, features_out):  # noqa: N802
    return lambda x: x
