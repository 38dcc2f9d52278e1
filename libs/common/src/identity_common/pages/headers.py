"""The headers that protect a page, its Content-Security-Policy above all."""

from collections.abc import Iterable
from urllib.parse import urlsplit


def page_headers(
    *, images: Iterable[str] = (), nonce: str | None = None, leads_elsewhere: bool = False
) -> dict[str, str]:
    """Return the headers that protect a page.

    No frames, no foreign content except images, no script except the one with the nonce, no caching, no referrer.

    Args:
        images: The addresses of foreign images on the page.
        nonce: Of the page's script.
        leads_elsewhere: Whether the answer to a form of the page redirects to an application. Chromium applies
            ``form-action`` to every redirect that follows, including the application's own, which are not known here:
            such a page has no ``form-action``.
    """
    policy = ["default-src 'none'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"]
    policy += [" ".join(("img-src 'self'", *sorted({_origin(image) for image in images})))]
    policy += [f"script-src 'nonce-{nonce}'"] if nonce else []
    policy += [] if leads_elsewhere else ["form-action 'self'"]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"
