"""Quotas in the formats of other programs: each module says what of a format is carried over, and what is not."""
