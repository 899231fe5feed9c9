"""General utilities, independent of recommenders: threads, argument validation, atomic files, progress bars, text and SVG."""
