"""What a member may do: the union over its roles.

Owns reading it over HTTP, and telling subscribers when it changes. Tokens do not come from here: token-service computes
the same union from the events of members, roles and permissions.
"""
