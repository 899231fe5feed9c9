"""Machinery that knows nothing of recommenders: threads, validation of arguments, files, progress, text and SVG."""
