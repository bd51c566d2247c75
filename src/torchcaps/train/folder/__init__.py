"""A run is a folder: its files, how each is replaced whole, and what they must hold."""
