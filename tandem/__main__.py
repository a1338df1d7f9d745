"""`python -m tandem`, which is also what torchrun starts."""

from tandem.cli import program

if __name__ == "__main__":
    program()
