"""From the authorization request to the code: who is at the browser, and what they agree to.

Owns sessions, requests on their way through the pages, and the throttle of passwords. Does not own what a sign-in
leaves behind for the client (``token_service.authorizations``), nor how pages look (``token_service.sign_in.pages``).
"""
