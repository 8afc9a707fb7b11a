"""How many kernels devices judge in an hour, and what ends that growth: measurements, calibration, simulation."""
