"""mozilla-django-oidc in a Django site; it reads no metadata, and finds its users by their e-mail address."""

import os
from urllib.parse import urlsplit

import django
from conversation import seen, visit
from django.conf import settings
from django.core.management import call_command
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import include, path

ISSUER = os.environ["ISSUER"]
SITE = urlsplit(os.environ["REDIRECT_URI"])

settings.configure(
    SECRET_KEY="a secret of the application alone",
    ALLOWED_HOSTS=[SITE.netloc],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[
        *("django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"),
        "mozilla_django_oidc",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    AUTHENTICATION_BACKENDS=["mozilla_django_oidc.auth.OIDCAuthenticationBackend"],
    LOGIN_REDIRECT_URL="/",
    OIDC_RP_CLIENT_ID=os.environ["CLIENT_ID"],
    OIDC_RP_CLIENT_SECRET=os.environ["CLIENT_SECRET"],
    OIDC_RP_SIGN_ALGO="ES256",
    OIDC_OP_AUTHORIZATION_ENDPOINT=f"{ISSUER}/auth",
    OIDC_OP_TOKEN_ENDPOINT=f"{ISSUER}/token",
    OIDC_OP_USER_ENDPOINT=f"{ISSUER}/me",
    OIDC_OP_JWKS_ENDPOINT=f"{ISSUER}/jwks",
    OIDC_TOKEN_USE_BASIC_AUTH=True,
    OIDC_USE_PKCE=True,
)
django.setup()


def home(request: HttpRequest) -> JsonResponse:
    """Say who is signed in."""
    return JsonResponse({"email": request.user.email if request.user.is_authenticated else None})


urlpatterns = [path("", home), path("oidc/", include("mozilla_django_oidc.urls"))]
call_command("migrate", verbosity=0)
browser = Client(headers={"host": SITE.netloc})
leaving = browser.get("/oidc/authenticate/", secure=True)
back = urlsplit(visit(leaving.headers["Location"]))
arrived = browser.get(f"{back.path}?{back.query}", secure=True)
seen(back=[arrived.status_code, arrived.headers["Location"]], user=browser.get("/", secure=True).json())
