"""Measures the speed of Stead against a floor, in one run: ``python -m benchmarks``. See README.md."""
