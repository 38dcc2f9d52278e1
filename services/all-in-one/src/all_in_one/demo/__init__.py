"""``make demo``: shows what Stead does, on the running stack and through the SDK; see ``__main__``."""
