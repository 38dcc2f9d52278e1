"""``make demo``: what the system does, shown on the running stack through the SDK; see ``__main__``."""
