"""One module for each experiment: NAME, TITLE, GPU, run(context), section(documents), summary(documents).

They are imported for the report too, so numpy and torch are imported inside functions.
"""

# In the order of the report.
NAMES = ("size", "recovery", "training", "throughput", "iteration", "clock", "scaling")
