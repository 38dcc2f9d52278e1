"""The hand-written OpenAPI operations of the endpoints that are raw ASGI routes."""
