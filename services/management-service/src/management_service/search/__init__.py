"""Searches everything that has a name or an id; asks template-service for its share. Does not own the objects."""
