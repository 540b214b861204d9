"""The pictures of the documentation: plots from docs/results, and drawings."""
