"""The one exception family that users see: a sentence naming the thing at fault and the remedy."""

import os


class TandemError(Exception):
    """A fault the user can mend; the command line prints it in one line and exits with code 2."""

    exit_code = 2


class JoinError(TandemError):
    """A fault found while the processes of a run were joining; whoever raises it says it, because others cannot."""


class SaidElsewhereError(TandemError):
    """This process ends for a reason that another one tells; it only exits."""


class LostPeerError(TandemError):
    """Another process of the run has ended or cannot be reached: started again, the run goes on."""

    exit_code = os.EX_TEMPFAIL


class LostPeerSaidElsewhereError(LostPeerError, SaidElsewhereError):
    """A lost process that another process of this host tells of."""
