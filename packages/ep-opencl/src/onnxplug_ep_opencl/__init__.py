"""The OpenCL execution provider: generated OpenCL C on any OpenCL 1.2 device, in the device's own memory."""
