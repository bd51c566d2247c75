"""Readers of labelled images that are files or arrays, and what fetches published ones."""
