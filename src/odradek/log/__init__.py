"""One partition's log on disk, and the manager over all of them."""
