"""The doctor and what it looks at: machine, images, network, and the course of training."""
