"""Shared by the services' pages: languages, rendering, cookies, and the tokens of the design."""
