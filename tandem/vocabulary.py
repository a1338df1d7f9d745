"""Token ids with a meaning of their own, the same in every vocabulary that Tandem makes."""

from __future__ import annotations

PAD, UNK, BOS, EOS = 0, 1, 2, 3
