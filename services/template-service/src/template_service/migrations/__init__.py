"""Revisions of template-service's database, oldest first."""
