"""Commands about recorded traffic: analyze, demo, and the steps of ``kquota pipeline``."""
