"""A process that has nothing of opsmith's, in which accepted kernels answer secret cases."""
