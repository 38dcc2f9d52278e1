"""The Merkle tree over the entries: its tiles and growth, its signed heads with their keys, and proofs against them."""
