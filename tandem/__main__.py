"""`python -m tandem`, which is also what torchrun starts, and the command `tandem`."""

from tandem.process_exit import end_process, stop_code
from tandem.process_signals import heard_signal, listen, say_stopped


def program() -> None:
    """Run the command line; signals are heard from here on, before anything large is imported."""
    try:
        listen()
        from tandem.cli import command_line

        command_line.program()
    except KeyboardInterrupt:
        say_stopped()
        end_process(stop_code(heard_signal()))


if __name__ == "__main__":
    program()
