"""OpenVINOExecutionProvider: regions of a graph compiled by OpenVINO."""
