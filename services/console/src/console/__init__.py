"""The admin console, at ``/console``: a client of the public Management API like any other.

Its own are sessions in Redis, and nothing else. What it shows and changes goes over HTTP with the signed-in
administrator's access token, so it can do nothing that the API cannot.
"""
