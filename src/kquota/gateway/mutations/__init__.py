"""Changes of topics: charged topic by topic, split, and their answers joined (KIP-599)."""
