"""Storing the trail: one active replica ingests the stream ``IDENTITY_AUDIT``, keeps the partitions, and erases."""
