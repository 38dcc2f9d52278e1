"""Second factors: passkeys, and what every change of a user's factors does.

Owns who may set one up, how a browser's answer is verified, and the replies to token-service, which has the pages and
makes and takes the challenges. Does not own which sign-in needs a factor: token-service decides that from
``User.second_factors``, which is published with the user.
"""
