"""Telemetry of a service: structured logs, metrics, request ids."""
