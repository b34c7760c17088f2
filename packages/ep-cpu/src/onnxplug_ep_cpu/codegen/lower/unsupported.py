"""What lowerings raise."""


class Unsupported(Exception):
    """The region cannot be generated for these shapes; the text is the reason."""
