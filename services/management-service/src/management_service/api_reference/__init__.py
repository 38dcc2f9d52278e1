"""Routes without a token: the status, the OpenAPI document, and the API reference in a browser, at ``/api/reference``.

Owns the page, which Swagger UI renders, its script and its Content-Security-Policy. Swagger UI comes from a package and
is served from here: no request goes to another host. Does not own the document.
"""
