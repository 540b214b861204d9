"""The scripts that are written in Python, as packages that tests can import."""
