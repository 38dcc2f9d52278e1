"""The bus: one connection a service, the three streams, and reading a stream in order from a position.

Owns what every user of NATS here needs alike. Does not own what the messages mean.
"""
