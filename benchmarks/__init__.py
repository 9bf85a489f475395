"""Figures and ratios on this machine, one module each."""
