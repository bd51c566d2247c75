"""`python -m torchcaps`, for who has the package but no `torchcaps` on the path."""

from torchcaps.cli import main

if __name__ == "__main__":
    main()
