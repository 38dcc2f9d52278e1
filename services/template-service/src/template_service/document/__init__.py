"""The template as a file: all organization permissions and roles as one JSON document, read, compared and applied.

Owns the document, its difference from the stored template, and how many members that affects. Does not own the
individual permissions and roles, their events, nor the fan-out.
"""
