"""What people see: sign-in, consent, sign-out and errors, as HTML from the server.

Owns how the pages look and what the browser may do with them. Does not own what happens between them
(``token_service.sign_in``).
"""
