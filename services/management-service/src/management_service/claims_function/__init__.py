"""The custom-claims function: its versions, which one is active, and what is asked of token-service, which runs it.

Owns the scripts and their environment variables at rest. No script is run here: this service has no sandbox.
"""
