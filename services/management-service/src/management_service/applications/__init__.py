"""Applications: OAuth clients, their settings and secrets. Does not own their roles (``roles``)."""
