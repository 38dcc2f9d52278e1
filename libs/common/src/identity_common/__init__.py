"""Everything that two services must agree on: wire contracts, protocol vocabulary, HTTP, stores, outbox, bus."""
