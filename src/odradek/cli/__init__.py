"""The odradek command."""
