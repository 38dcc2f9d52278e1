"""What the organization roles of a user grant, for management-service, which answers for all permissions of a user.

Does not own memberships and roles (``template_service.members``, ``template_service.roles``), nor the names of API
scopes: management-service has them.
"""
