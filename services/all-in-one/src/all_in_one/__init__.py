"""The three services on one address, over real servers as child processes."""
