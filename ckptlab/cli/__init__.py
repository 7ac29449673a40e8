"""The terminal's door: parse, call one function, print."""
