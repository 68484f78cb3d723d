"""Measurements of ordiff beside its peers: accuracy, speed, memory and start-up. See `benchmarks.run`."""
