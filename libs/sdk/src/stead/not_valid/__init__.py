"""The not-valid feed: verifiers reject tokens that were ended early, within a second and without a request each."""

from stead.not_valid.feed import NotValidFeed

__all__ = ["NotValidFeed"]
