"""Wire contracts between the services, in Redis and on the bus. A change here is a change of a protocol."""
