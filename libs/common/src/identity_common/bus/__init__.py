"""The bus: the NATS connection of a service, the streams, ordered publishing, and ordered reading from a position.

Does not own the contents of the messages.
"""
