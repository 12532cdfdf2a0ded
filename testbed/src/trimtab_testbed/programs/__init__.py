"""The programs that the testbed starts: found, built or downloaded."""
