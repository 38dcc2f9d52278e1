"""What all clients share: operations without I/O, HTTP, and the requests and responses of ``/api``."""
