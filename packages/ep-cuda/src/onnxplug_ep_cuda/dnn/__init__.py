"""cuDNN through its frontend: graphs of what it is asked for, the choice and keeping of plans, their execution."""
