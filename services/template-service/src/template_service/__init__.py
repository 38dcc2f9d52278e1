"""Organization template: permissions and roles, organizations, and their members.

Owns these in its database and publishes every change of them. Does not own users, applications and API resources, which
it knows from the events of management-service, nor tokens.
"""
