"""The API reference in a browser, at ``/api/reference``: the OpenAPI document, rendered by Swagger UI.

Owns the page, its script and its Content-Security-Policy. Swagger UI comes from a package and is served from here: no
request goes to another host. Does not own the document.
"""
