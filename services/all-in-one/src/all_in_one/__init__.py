"""Stead in one process: the three services at one address, with real servers as child processes."""
