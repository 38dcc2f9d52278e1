"""What the service is built from: each module builds one part of it from the settings, and ``app`` joins them.

Owns which object gets which, and what starts and stops in which order. Does not own any behaviour.
"""
