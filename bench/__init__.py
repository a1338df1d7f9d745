"""The measurements that the README quotes, each a script: `python -m bench.NAME`."""
