"""The best n items of many rows."""
