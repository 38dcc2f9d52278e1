"""Fan-out: publishes the members' permissions that a change touches, in batches behind the request.

Owns the requests for it, the worker, and the comparison with what was last published of each member. It also deletes
what a deleted organization or role leaves behind. Does not own the changes themselves.
"""
