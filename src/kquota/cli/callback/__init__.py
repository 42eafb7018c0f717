"""``kquota callback``: quota callbacks on recorded traffic."""
