"""What operators see of a service: structured logs, metrics, and one observation for each request."""
