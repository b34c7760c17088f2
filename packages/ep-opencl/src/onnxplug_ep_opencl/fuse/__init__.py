"""Fusion: chains of element-wise operators, alone or behind a product, as one kernel."""
