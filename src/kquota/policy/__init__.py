"""What is wanted against what is: differences, plans, lint, side effects, owners, objectives.

Pure: values in, values out; carrying a plan out is `kquota.stores`.
"""
