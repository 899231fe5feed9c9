"""What rows of data look like to a tower: features by field, levels, histories as running sums, tables of them."""
