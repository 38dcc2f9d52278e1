"""The floor: what a token exchange cannot do without, and nothing else, on the very server that the services run on.

``python -m benchmarks.floor serve --port N``, as a service is started.
"""
