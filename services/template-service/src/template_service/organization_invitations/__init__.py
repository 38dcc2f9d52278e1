"""Invitations of people to organizations, by e-mail address.

Owns the invitations, their states, and what accepting one gives. Does not own the text of a mail, the account of the
invited person, nor the page of the link (the other two services).
"""
