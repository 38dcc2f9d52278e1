"""How fast the services are beside a floor, measured in one run: ``python -m benchmarks``. See README.md."""
