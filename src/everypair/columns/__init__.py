"""Rows of data as towers read them: fields of features, levels, histories as running sums, and tables of such columns."""
