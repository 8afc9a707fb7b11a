"""The evaluation service: kernels are submitted over HTTP, judged from a queue that survives a kill, and looked at.

One process is the server and the judge: it plans, keeps the books and the clock, and makes no tensors. Whatever runs
strangers' code is a worker of :mod:`opsmith.runner`, as in every other verb.
"""
