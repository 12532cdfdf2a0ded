"""The decision log: why each move was made or not made, and what was measured after it."""
