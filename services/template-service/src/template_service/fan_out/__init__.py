"""Fan-out: publishes the new permissions of the members that a change affects, in batches, after the response.

Owns the requests for it, the worker, and the comparison with what was last published of each member. It also deletes
what a deleted organization or role leaves behind. Does not own the changes themselves.
"""
