"""The pages of a person's own account: ``/account``, one module for each of its areas.

Owns what these pages show and send. Does not own what a person may change: ``/api/my-account`` judges that, by the
person's own token, and roles play no part.
"""
