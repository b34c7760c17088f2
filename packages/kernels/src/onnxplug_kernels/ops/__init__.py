"""One operator family per module; importing a module enters its functions in the catalogue."""
