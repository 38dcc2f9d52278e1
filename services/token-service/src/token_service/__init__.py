"""Token endpoint, signing keys and the directory."""
