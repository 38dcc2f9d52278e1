"""The outbox: a change, its revisions and its events are one transaction; a relay brings the events to the bus.

Owns the three tables that every source of changes has, the transaction that writes them, and the relay. Does not own
what the events say.
"""
