"""Users: people that tokens speak for, their passwords, and their suspension."""
