"""``if_match``: which version a write is about, and where the caller has it from (RFC 9110 section 13.1.1)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stead import AsyncManagementClient, ManagementClient, OrganizationTemplate, User, VersionMismatch
from tests.unit.sdk.service import Service

PATH = "/api/users/u1"
USER_JSON = {"id": "u1", "name": "Ada"}
USER = User(id="u1", name="Ada")
REFUSAL = {"code": "entity.version_mismatch", "message": "This has been changed since it was read."}


def sent_conditions(service: Service) -> list[str | None]:
    return [call.headers.get("if-match") for call in service.calls if call.method != "GET"]


async def test_what_was_read_is_written_only_as_it_was_read(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    service.will_answer("GET", PATH, USER_JSON, headers={"ETag": '"1"'})
    service.will_answer("PATCH", PATH, USER_JSON)
    client.users.update("u1", name="Ada", if_match=client.users.get("u1").etag)
    user = await async_client.users.get("u1")
    await async_client.users.update("u1", name="Ada", if_match=user.etag)
    client.users.delete("u1", if_match="*")
    client.users.delete("u1")
    assert sent_conditions(service) == ['"1"', '"1"', "*", None]


async def test_a_refused_condition_is_an_error_of_its_own(
    service: Service, client: ManagementClient, async_client: AsyncManagementClient
) -> None:
    service.will_answer("PATCH", PATH, REFUSAL, status=412)
    with pytest.raises(VersionMismatch) as refused:
        client.users.update("u1", name="Ada", if_match='"1"')
    assert (refused.value.status, refused.value.code) == (412, "entity.version_mismatch")
    with pytest.raises(VersionMismatch):
        await async_client.users.update("u1", name="Ada", if_match='"1"')


def test_a_function_is_saved_only_if_there_is_none(service: Service, client: ManagementClient) -> None:
    path = "/api/configs/jwt-customizer/access-token"
    service.will_answer("PUT", path, REFUSAL, status=412)
    with pytest.raises(VersionMismatch):
        client.custom_claims.save("access-token", "s", if_none_match="*")
    (call,) = service.calls
    assert (call.headers.get("if-none-match"), call.headers.get("if-match")) == ("*", None)


def test_a_version_is_no_member(service: Service, client: ManagementClient) -> None:
    service.will_answer("GET", PATH, {**USER_JSON, "etag": "a member"}, headers={"ETag": '"1"'})
    user = client.users.get("u1")
    assert (user, hash(user.id), user.etag) == (USER, hash(USER.id), '"1"')
    assert msgspec.json.encode(user) == msgspec.json.encode(USER)
    assert msgspec.structs.replace(user, name="Augusta").etag is None


def test_a_document_has_a_version(service: Service, client: ManagementClient) -> None:
    path = "/api/organization-template"
    service.will_answer("GET", path, {"permissions": [], "roles": []}, headers={"ETag": '"7"'})
    service.will_answer("PUT", path, {"permissions": {}, "roles": {}})
    template = client.organization_template.get()
    assert (template, template.etag) == (OrganizationTemplate(permissions=[], roles=[]), '"7"')
    service.will_answer("PUT", path, REFUSAL, status=412)
    with pytest.raises(VersionMismatch):
        client.organization_template.put(template, if_match=template.etag)
    assert sent_conditions(service) == ['"7"']


def test_what_has_no_version_is_not_written_without_a_condition_by_mistake(
    service: Service, client: ManagementClient
) -> None:
    service.will_answer("GET", "/api/users", [USER_JSON], headers={"Total-Number": "1", "ETag": '"list"'})
    service.will_answer("PATCH", PATH, USER_JSON)
    listed, changed = next(iter(client.users.list())), client.users.update("u1", name="Ada")
    for user in (listed, changed, USER):
        assert user.etag is None
        with pytest.raises(ValueError, match="only an object that was read individually has an etag"):
            client.users.update("u1", name="Ada", if_match=user.etag)
    assert sent_conditions(service) == [None]


@pytest.mark.parametrize("condition", ["", "a\r\nX: y", "\0", "“1”"])
def test_what_no_header_can_hold_is_not_sent(service: Service, client: ManagementClient, condition: str) -> None:
    with pytest.raises(ValueError, match="if_match must be an etag"):
        client.users.delete("u1", if_match=condition)
    assert service.calls == []


@pytest.mark.parametrize(("headers", "etag"), [({"Total-Number": "1"}, '"1"'), ({"Total-Number": "2"}, None)])
async def test_a_page_with_the_whole_list_has_its_version(
    service: Service,
    client: ManagementClient,
    async_client: AsyncManagementClient,
    headers: dict[str, Any],
    etag: str | None,
) -> None:
    path = f"{PATH}/roles"
    service.will_answer("GET", path, [{"id": "r1", "name": "Support"}], headers={**headers, "ETag": '"1"'})
    assert client.users.roles("u1").page().etag == etag
    assert (await async_client.users.roles("u1").page()).etag == etag
    if etag is not None:
        client.users.replace_roles("u1", ["r2"], if_match=etag)
        await async_client.organizations.replace_user_roles("o1", "u1", ["r2"], if_match=etag)
        assert sent_conditions(service) == [etag, etag]


def test_a_list_with_cursors_has_no_version(service: Service, client: ManagementClient) -> None:
    service.will_answer("GET", "/api/logs", [], headers={"ETag": '"1"'})
    assert client.logs.list().page().etag is None
