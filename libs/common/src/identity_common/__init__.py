"""What two services must agree on: wire contracts, protocol vocabulary, edge plumbing, outbox, bus consumers."""
