"""Storing the trail: one active replica ingests the stream ``IDENTITY_AUDIT``, applies the retention, and erases."""
