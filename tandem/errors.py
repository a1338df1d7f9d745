"""The one exception family that users see: a sentence naming the thing at fault and the remedy."""


class TandemError(Exception):
    """A fault the user can mend; the command line prints it in one line and exits with code 2."""


class SaidElsewhereError(TandemError):
    """This process ends for a reason that another one tells; it only exits with code 2."""
