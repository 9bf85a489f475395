"""Following: fetching from leaders, truncating to what they have, appending."""
