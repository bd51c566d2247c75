"""One Chromium for all tests that look at a page."""

from chromium import browser

__all__ = ["browser"]
