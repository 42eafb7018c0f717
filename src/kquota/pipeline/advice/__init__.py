"""What other limits would have done, and which to set: what-if, impact, curve, recommendations."""
