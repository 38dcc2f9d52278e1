"""Answers of real authenticators, and odd CBOR: from the tests of python-fido2 2.2.

``tests/test_attestation.py`` and ``tests/test_cbor.py`` of https://github.com/Yubico/python-fido2; the CBOR is that of
RFC 8949 appendix A.
"""

from base64 import b64decode
from typing import Final

SECURITY_KEY: Final = b64decode(
    "ACH1/AuFzSLmBiO819HKSJSJCSSbR3brUVFU5XtmrhJBAAAAK/igEfOMCk0VgAYXER+e3H0AQKFzcNnBdZAFcAyN5359/ToKUwDgom5SE6pA1t8Q"
    "7kAotYtfNBZwNdhAvrrgxc6P0FrZvTPjvn0cVY2Bq0gDVwulAQIDJiABIVggpf1c4bHEWMUwpU+mGzG/awS+i5ev3lTdjLtpJ1qKG+EiWCD6OjIx"
    "3Z3u2dGJe+WmIoxZUB5LzRKXXT3/cw8BJ46mHA=="
)
"""Authenticator data of a security key with a key for ES256."""

WINDOWS_HELLO: Final = b64decode(
    "VM5lHtcVtKqnVe7OvU6glQgVszS9B9EJiT6WMBjN29lFAAAAAGAosBex1EwCtLOvza/Ja7IAIB3s/NbWoFwoJtUjSK/ccKmADfAHhFBHsaI3Bqpu"
    "LzFcpAEDAzkBACBZAQCvWfStT3HagAu5EEWyZ+JA4GMX97Kx12944jmkM4EfrspYoYafsAIl6ycn+BtrIMvBjArY04+kUOjfEbStO8PuXRPHftFy"
    "+jrwGV7GrAxLrIyVARXfzm04c3y6/vvhF9hAHNVsY4BDoNWFExvEihU7F6jcuWZx4VqQuhtP+BCxOLd6wKBQsDm4e2CJ3Y36RWEbmSEJ1VSq0+a3"
    "KsgtgBSW5NLSMKpGYJC7v09WMv5LWI5PVxRiN4+m9RSlNqWUWyI8jZj3MLfPhd6GuYwhcJD56ev5ZDzz/s7qy4N9ehhULgMnHNjHDPgRhs22Pky/"
    "TvwMu9PJMjGwbxlYDQqYAmTRIUMBAAE="
)
"""The same with a key for RS256."""

PACKED: Final = b64decode(
    "ACH1/AuFzSLmBiO819HKSJSJCSSbR3brUVFU5XtmrhJBAAAAA/igEfOMCk0VgAYXER+e3H0AQGCjhiBqOqzsvbsi1gGFPZVf3F0RrfvRqmqVDZZr"
    "NIx2Y9QBc3FKn5h99kYb6t+5zWQZ/9/k1M8u7BqmBaT1m9qlAQIDJiABIVggDtsnWAOJSU100jc7j4wui3b6E1lG1PMNDhh+EgtCM0kiWCDgNADR"
    "iehaVd6asPU47WBzbrdQ9fAwaoAGD+GxMBBWDQ=="
)
"""The same of a security key that proves its make, with the two below."""

PACKED_SIGNATURE: Final = b64decode(
    "MEUCIA0V2vM31yerRxm0AnEUoqxDzVZdOUztYsPZ0dkIJfCzAiEAmJYV5zlMh/Stkfj9rob3ozJt8zKzYz2wiKrHa/+5pGs="
)

PACKED_CERTIFICATE: Final = b64decode(
    "MIICtzCCAZ+gAwIBAgIEHTEzDTANBgkqhkiG9w0BAQsFADAqMSgwJgYDVQQDDB9ZdWJpY28gUHJldmlldyBGSURPIEF0dGVzdGF0aW9uMB4XDTE4"
    "MDMyODA2MzkyNFoXDTE5MDMyODA2MzkyNFowbjELMAkGA1UEBhMCU0UxEjAQBgNVBAoMCVl1YmljbyBBQjEiMCAGA1UECwwZQXV0aGVudGljYXRv"
    "ciBBdHRlc3RhdGlvbjEnMCUGA1UEAwweWXViaWNvIFUyRiBFRSBTZXJpYWwgNDg5NzYzNTk3MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEfXHo"
    "Nnyv0Ops8NYeTGpBa6W7bY+tUtsjia0Hlp8PRjv93d3CnTnTGZFj7klXWjM2wEszCdYH9hYMgeAjNz4Bl6NsMGowIgYJKwYBBAGCxAoCBBUxLjMu"
    "Ni4xLjQuMS40MTQ4Mi4xLjIwEwYLKwYBBAGC5RwCAQEEBAMCBDAwIQYLKwYBBAGC5RwBAQQEEgQQ+KAR84wKTRWABhcRH57cfTAMBgNVHRMBAf8E"
    "AjAAMA0GCSqGSIb3DQEBCwUAA4IBAQCbkEzq2+HxmFSG/q0Cuuqnflq05uUrfmomZqTcBuJBV4FpGTtj2t7FsreGBaEosuA/f+Kpjq60IZ9SIgmV"
    "9ADOFdYwzwWYumYtcWJFnxrR/GIwZzdtTkCRvmWsGjPYVhuZlsBSnsGBbRcQeGOE1eh4OqH3R0y5n+j1pjp5/0VDgDYcKZ1ny1zHx58NjAn4hJsF"
    "APbWJUCMd8u8Jt3uEctYG+t5RxN61PBarzi9mNoQBC3crCd2BKOVpbPqqIpci7J6tZyBJ9Wda7ul8RUGv3t1/adWGgg3xG8CX9VNzxAU/I0XyFlQ"
    "esV9Sx3qmUhd8LqPNNABA8Pu8u87v+x6ZhPe"
)

# Numbers, tags, texts, arrays and maps, also of indefinite length:
CBOR: Final = (
    *map(bytes.fromhex, ("1bffffffffffffffff", "3bffffffffffffffff", "c249010000000000000000", "f90000", "f97e00")),
    *map(bytes.fromhex, ("fb7ff0000000000000", "f5", "f6", "f7", "f0", "f8ff", "c1fb41d452d9ec200000")),
    *map(bytes.fromhex, ("c074323031332d30332d32315432303a30343a30305a", "d818456449455446", "40", "4401020304")),
    *map(bytes.fromhex, ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "6449455446", "80", "8301820203820405")),
    *map(bytes.fromhex, ("a0", "a201020304", "a26161016162820203", "5f42010243030405ff", "7f657374726561646d696e67ff")),
    *map(bytes.fromhex, ("9fff", "9f01820203820405ff", "bf61610161629f0203ffff")),
)
