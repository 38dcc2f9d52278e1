"""What the service is built from: each module builds one part of it from the settings, and ``app`` joins them.

Owns the wiring, and the order of starting and stopping. Does not own any behaviour.
"""
