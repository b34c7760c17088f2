"""The tests pytest collects."""
