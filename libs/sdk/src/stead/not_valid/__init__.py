"""The not-valid feed: verifiers reject what was ended after a token was issued, within a second, without a request."""

from stead.not_valid.feed import NotValidFeed

__all__ = ["NotValidFeed"]
