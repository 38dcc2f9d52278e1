"""Applications: the clients of OAuth, with their settings and secrets."""
