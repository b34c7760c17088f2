"""CuPy itself without a driver: everything up to the call of the driver happens, nothing is computed."""
