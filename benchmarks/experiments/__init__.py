"""Single experiments whose results are in docs/log.md. Each prints its figures."""
