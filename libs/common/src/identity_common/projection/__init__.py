"""How far a projection has seen each source of changes, and waiting until that is far enough for a request.

Owns the watermarks that a part of a projection has seen, catching up with the head of a stream, and read-your-writes.
Does not own reading the stream (``identity_common.bus``), nor where a projection stores its records and its position.
"""
