"""The demo corpus: English-German sentence pairs from a small grammar, correct and nearly without end.

It lets every command run offline within minutes, and tests what a translator must learn: gender and case, adjective
endings, verbs that split and verbs that wait for the end of the clause. The files build on each other: words and
their forms (`lexicon`), phrases and clauses in both languages (`grammar`), random sentences (`sentences`), the split
(`toy_corpus`).

Two promises hold by design and are tested:

* An English sentence has one German rendering (the lexicon leaves out what would be ambiguous).
* Every dev and test sentence contains a *combination*, an adjective with its noun or a verb with a noun it governs,
  that occurs nowhere in training. Who scores there has learnt the grammar, not the sentences.
"""

from tandem.demo.toy_corpus import DemoCorpus, Pair, generate, write_demo_text

__all__ = ["DemoCorpus", "Pair", "generate", "write_demo_text"]
