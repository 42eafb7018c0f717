"""``kquota callback``: quota callbacks tried on recorded traffic."""
