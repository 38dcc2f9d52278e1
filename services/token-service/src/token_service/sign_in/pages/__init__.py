"""The pages: sign-in, consent, sign-out and problems, as HTML rendered by the server.

Owns their look, their security headers, cookies, and the reading of a browser's request. Does not own the flow
between them (``token_service.sign_in``).
"""
