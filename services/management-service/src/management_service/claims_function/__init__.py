"""The custom-claims function: its versions, which one is active, and the requests to token-service, which runs it.

Owns the scripts and their environment variables at rest. No script is run here: this service has no sandbox.
"""
