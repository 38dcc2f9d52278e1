"""Tells subscribers whose permissions a change has touched, in batches behind the request."""
