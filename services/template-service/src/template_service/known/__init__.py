"""Projection of management-service's events: users, machine-to-machine applications, resources and their scopes.

Owns the projection in our own database; no request calls another service. Does not own how fresh it is for a request
(``identity_common.projection``), nor reading and applying the events (``template_service.management_events``).
"""
