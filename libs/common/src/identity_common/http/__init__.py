"""HTTP as every service speaks it: apps, bodies, errors, pages of lists, conditional requests, OpenAPI."""
