"""Distributed training: join the processes of a run, launch them on hosts, exchange gradients between them."""
