"""Modules of verbs of the command line, and what some of them share."""
