"""A score taken apart into the contributions of features."""
