"""Proposals: plans that wait for a person's approval, and how approved ones are carried out."""
