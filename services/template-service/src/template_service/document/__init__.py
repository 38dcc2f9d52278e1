"""The template as a file: all organization permissions and roles as one JSON document, read, compared and applied.

Owns the document, what is different from it, and how many members that reaches. Does not own the permissions and roles
themselves, what the bus is told of them, nor who is looked at afterwards.
"""
