"""Makers: images that are drawn, or made of those of another set."""
