"""The not-valid feed: verifiers reject what was ended after a token was issued, within a second, and offline."""
