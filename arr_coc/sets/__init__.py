"""Sets: questions that people asked about real pictures, read from each set's own columns."""
