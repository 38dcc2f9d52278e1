"""OpenAPI documents: what a route declares beside its signature, and the document that is made of all of them."""
