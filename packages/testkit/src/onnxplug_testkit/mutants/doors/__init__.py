"""Front doors that are wrong as modules; the checks import each in a fresh interpreter."""
