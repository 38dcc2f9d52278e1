"""One Secret of Kubernetes, read and written by a pod through the API server with the token of its ServiceAccount.

Needs the verbs ``get``, ``patch`` and ``create`` on this one name. Does not own what the Secret is for.
"""

import base64
import binascii
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import httpx2 as httpx
import msgspec

from identity_common.serving import CommandError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token, the certificate authority and the namespace."""

_MANAGER: Final = "stead-bootstrap"
_TIMEOUT_S: Final = 10.0


class _Stored(msgspec.Struct):
    """The part of the API server's response that is used: the values in Base64."""

    data: dict[str, str] = {}


class _Status(msgspec.Struct):
    """The API server's answer to a refused request."""

    reason: str = ""


class KubernetesSecret:
    """A Secret by its name.

    Args:
        http: Sends requests to the API server, and authenticates them.
        namespace: The namespace of the Secret.
        name: Its name.
    """

    def __init__(self, http: httpx.AsyncClient, *, namespace: str, name: str) -> None:
        self._http = http
        self._name = name
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"

    @classmethod
    def in_this_pod(cls, name: str, environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Self:
        """Return a Secret in the namespace of the pod that this process runs in.

        Args:
            name: Its name.
            environment: Environment variables, in which Kubernetes names the API server.
            account: The directory of the ServiceAccount.

        Raises:
            CommandError: This is not a pod, or it has no token.
        """
        try:
            host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
            token, namespace = ((account / file).read_text().strip() for file in ("token", "namespace"))
            trusted = ssl.create_default_context(cafile=account / "ca.crt")
        except (KeyError, OSError) as error:
            raise CommandError(
                f"cannot write the Secret {name}: this is not a pod with the token of a ServiceAccount"
                f" ({type(error).__name__})"
            ) from None
        http = httpx.AsyncClient(
            base_url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            headers={"Authorization": f"Bearer {token}"},
            verify=trusted,
            trust_env=False,
            timeout=_TIMEOUT_S,
        )
        return cls(http, namespace=namespace, name=name)

    async def aclose(self) -> None:
        """Close the connections to the API server."""
        await self._http.aclose()

    async def read(self) -> dict[str, str] | None:
        """Return the values by key; None if the Secret does not exist.

        Raises:
            CommandError: The API server does not answer or refuses.
        """
        answer = await self._send("GET")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        self._require_success(answer)
        try:
            stored = msgspec.json.decode(answer.content, type=_Stored).data
            return {key: base64.b64decode(value, validate=True).decode() for key, value in stored.items()}
        except (msgspec.MsgspecError, binascii.Error, UnicodeDecodeError):
            return {}  # not written by this class: the caller replaces them

    async def write(self, values: Mapping[str, str]) -> None:
        """Create the Secret with these values, or replace them, in one request: a server-side apply.

        Raises:
            CommandError: The API server does not answer or refuses.
        """
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name},
            "type": "Opaque",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
        }
        self._require_success(await self._send("PATCH", secret))

    async def _send(self, method: str, body: object = None) -> httpx.Response:
        try:
            if body is None:
                return await self._http.request(method, self._path)
            return await self._http.request(
                method,
                self._path,
                params={"fieldManager": _MANAGER, "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},  # JSON is YAML
                content=msgspec.json.encode(body),
            )
        except httpx.HTTPError as error:
            raise CommandError(f"the API server of Kubernetes does not answer ({type(error).__name__})") from None

    def _require_success(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            reason = msgspec.json.decode(answer.content, type=_Status).reason
        except msgspec.MsgspecError:
            reason = ""
        raise CommandError(
            f"Kubernetes refused access to the Secret {self._name}: {answer.status_code} {reason}".rstrip()
        )
