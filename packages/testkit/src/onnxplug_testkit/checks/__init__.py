"""The checks of the levels contract, memory, graph and robust, one module for each subject matter."""
