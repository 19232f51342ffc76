"""What ends the command before any process starts."""


class Refused(Exception):
    """Said in one line; the command ends with `code`."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code
