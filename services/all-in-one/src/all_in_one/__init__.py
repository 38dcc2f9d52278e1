"""Stead in one process: the services at one address, with real servers as child processes."""
