"""The headers that protect a page, its Content-Security-Policy above all."""

from urllib.parse import urlsplit


def page_headers(form_action: str = "", *, logo: str | None = None, nonce: str | None = None) -> dict[str, str]:
    """Return the headers that protect a page.

    No frames, no foreign content except the logo, no script except the one with the nonce, no caching, no referrer.
    """
    policy = ["default-src 'none'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"]
    policy += [f"script-src 'nonce-{nonce}'"] if nonce else []
    policy += [f"img-src {_origin(logo)}"] if logo else []
    policy += [f"form-action 'self' {form_action}".rstrip()]
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
