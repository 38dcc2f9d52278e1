"""The admin console, at ``/console``: a client of the public Management API like any other.

Nothing in it reads a store of the service but its own sessions: what it shows and changes goes over HTTP, with the
signed-in administrator's access token, so that it can do nothing that the API cannot.
"""
