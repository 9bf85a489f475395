"""A cluster of processes under torment, and the account of every record."""
