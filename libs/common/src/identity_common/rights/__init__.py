"""Rights to the Management API: its scopes, and which of them each operation needs.

Below ``http`` and ``access``, because documents are written from it as well as requests judged. Does not own how a
caller is admitted (``access``), nor who holds which scope.
"""
