"""requests-oauthlib with PKCE; oauthlib raises if the granted scope is not the one that was requested."""

import os

from conversation import seen, visit
from requests_oauthlib import OAuth2Session

SETTING = os.environ
ISSUER = SETTING["ISSUER"]

session = OAuth2Session(
    SETTING["CLIENT_ID"], redirect_uri=SETTING["REDIRECT_URI"], scope=["openid", "profile"], pkce="S256"
)
url, state = session.authorization_url(f"{ISSUER}/auth", nonce="a nonce")
token = session.fetch_token(
    f"{ISSUER}/token", authorization_response=visit(url), client_secret=SETTING["CLIENT_SECRET"]
)
person = session.get(f"{ISSUER}/me").json()
seen(scope=token["scope"], sub=person["sub"], name=person["name"])
