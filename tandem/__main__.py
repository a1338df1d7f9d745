"""`python -m tandem`, which is also what torchrun starts."""

from tandem.cli import main

if __name__ == "__main__":
    main()
