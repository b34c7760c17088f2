"""The public session and what it is configured and fed with: options, feeds, OrtValue, IOBinding."""
