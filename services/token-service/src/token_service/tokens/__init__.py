"""Access tokens: what stands in them, which scopes they carry, with what they are signed and how they are read back."""
