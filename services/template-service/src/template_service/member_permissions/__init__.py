"""Permissions of a member: the union over its roles.

Owns reading it over HTTP: once, by polling, or by waiting for a change. Does not own the events about it
(``template_service.fan_out``), nor tokens: token-service computes the same union from the events of members, roles and
permissions.
"""
