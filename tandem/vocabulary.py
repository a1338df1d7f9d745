"""Token ids with a meaning of their own, the same in every vocabulary that Tandem makes."""

from __future__ import annotations

PAD, UNK, BOS, EOS = 0, 1, 2, 3
# Then come the 256 bytes, which spell what has no piece of its own, and what was learnt from text.
FIRST_BYTE = 4
FIRST_LEARNT = FIRST_BYTE + 256
