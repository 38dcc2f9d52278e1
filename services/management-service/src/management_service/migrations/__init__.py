"""Revisions of management-service's database, oldest first."""
