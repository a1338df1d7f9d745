"""The one exception family that users see: a sentence naming the thing at fault and the remedy."""


class TandemError(Exception):
    """A fault the user can mend; the command line prints it in one line and exits with code 2."""


class JoinError(TandemError):
    """A fault found while the processes of a run were joining; whoever raises it says it, because others cannot."""


class SaidElsewhereError(TandemError):
    """This process ends for a reason that another one tells; it only exits with code 2."""


class LostPeerError(TandemError):
    """Another process of the run, its host or the network to it is gone: exit code 75, for it is worth another try."""


class LostPeerSaidElsewhereError(LostPeerError, SaidElsewhereError):
    """A lost process that another process of this host tells of."""
