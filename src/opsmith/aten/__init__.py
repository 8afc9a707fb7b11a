"""What ATen's ops are: schemas, groups of variants, arguments, and kernels derived from one another."""
