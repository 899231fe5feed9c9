"""Steps on the weights of a field of features, by the kind of field."""
