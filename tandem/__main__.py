"""`python -m tandem`, which is also what torchrun starts."""

from tandem.cli.command_line import program

if __name__ == "__main__":
    program()
