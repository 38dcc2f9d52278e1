"""The outbox: a change, its revisions and its events are one transaction; a relay publishes the events.

Owns the tables that every source of changes has, the transaction that writes to them, and the relay. Does not own the
contents of the events.
"""
