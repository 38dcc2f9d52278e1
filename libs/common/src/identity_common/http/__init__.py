"""HTTP as all services speak it: apps, bodies, errors, pagination, conditional requests, CORS, OpenAPI."""
