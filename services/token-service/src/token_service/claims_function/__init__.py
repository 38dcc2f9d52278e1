"""The custom-claims function in use."""
