"""The verbs of the command line that are one module each."""
