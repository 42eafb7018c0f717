"""One module for each API: a function from the request's body and what the server knows to the answer's body."""
