"""Requests and responses: operations without I/O, the HTTP that carries them, and what every service sends back."""
