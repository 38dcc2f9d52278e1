"""The not-valid feed: verifiers reject tokens that were ended early, within a second and without a request each."""

from stead.verify.feed.not_valid_feed import NotValidFeed

__all__ = ["NotValidFeed"]
