"""The audit trail: ingested from the stream ``IDENTITY_AUDIT``, kept for the retention, and read.

Owns the tables of the trail and their partitions. Does not own what is recorded: the services publish their entries.
"""
