"""The floor: the minimum of a token exchange and nothing else, on the same server as the services.

Started like a service: ``python -m benchmarks.floor serve --port N``.
"""
