"""The paper's evaluation, done again with this library, and past it: `python -m evaluate --help`.

Experiments (experiments/) measure and write JSON documents; report.py makes one page of them. What is measured, what is
modelled and what is a formula is said of every figure.
"""
