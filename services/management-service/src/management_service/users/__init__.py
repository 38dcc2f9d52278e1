"""Users: their profiles, setting passwords, and suspension. Does not own their roles (``roles``)."""
