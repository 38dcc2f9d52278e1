"""Which members a new template would affect, and what each of them gains and loses.

Owns the list of these members and its export. Does not own the document, its validation, nor how many members it
affects: ``document`` does.
"""
