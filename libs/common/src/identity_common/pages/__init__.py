"""Shared by the services' pages: languages, rendering, cookies, and design tokens."""
