"""The operations of the Management API, each described once (see ``_transport.operations.Operation``).

A function describes which request to send and how to read its response; ``operation_groups`` offers it to clients
under a short name. A function that returns a ``ListRequest`` describes a list; ``page_size`` is the number of items per
request, 1 to 100.
"""
