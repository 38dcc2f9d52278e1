"""The tests, and what applies in every process that imports one of them."""

import functools

import httpcore2

# An HTTP client that is given no SSL context reads the trusted certificates, which takes 40 ms of CPU time.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
