"""The layout of the directory in Redis: which key holds what. Pure.

A record's key is its event's subject, written with colons. No other module composes such a key.
"""

from typing import Final

import msgspec

from identity_common.wire.events import event_subject

_LAYOUT: Final = 4
"""Version of what is projected and how; another number makes the projection read the stream from its beginning."""

# Returns the records of the organization and the member of each membership in turn; false if there are over `at_most`.
# The last three arguments are `DirectoryKeys.memberships`.
LUA_READ_MEMBERSHIPS: Final = """
local function read_memberships(member_id, at_most, organizations_of, organization, member)
    local ids = organizations_of .. member_id
    if redis.call('SCARD', ids) > tonumber(at_most) then return false end
    local found = {}
    for _, id in ipairs(redis.call('SMEMBERS', ids)) do
        found[#found + 1] = redis.call('GET', organization .. id)
        found[#found + 1] = redis.call('GET', member .. id .. ':' .. member_id)
    end
    return found
end
"""

# Returns whether the records beside an encoded state are complete, include these revisions by source, and come
# from a projector that has heard from the bus since then.
LUA_IS_CURRENT: Final = """
local function is_current(stored, heard_since, at_least)
    local state = stored and cjson.decode(stored)
    if not state or not state.complete or state.heard_at < tonumber(heard_since) then return false end
    for source, revision in pairs(at_least) do
        if (state.revisions[source] or -1) < revision then return false end
    end
    return true
end
"""


# Returns whether the user is a member of the organization, and the organization requires a second factor. The arguments
# are the values of the keys `DirectoryKeys.of_subject` of a member.
LUA_IS_MEMBER_WITH_FACTOR: Final = """
local function is_member_with_factor(_, organization, _, _, member)
    local function state_of(record) return record and string.match(record, ' (.+)$') end
    local organization_state = state_of(organization)
    if not organization_state or not state_of(member) then return false end
    return cjson.decode(organization_state).isMfaRequired == true
end
"""


class RecordKeys(msgspec.Struct, frozen=True):
    """The keys of a snapshot, for a script that learns in Redis only which user it is about.

    Attributes:
        keys: The projection's state, and records that do not depend on the user.
        prefixes: Of the other keys, in their order; the id of the user or application follows.
    """

    keys: tuple[str, ...]
    prefixes: tuple[str, ...]

    def keys_of(self, holder_id: str) -> list[str]:
        """Return all keys, in the snapshot's order."""
        return [*self.keys, *(prefix + holder_id for prefix in self.prefixes)]


class DirectoryKeys:
    """The keys of one tenant.

    Attributes:
        state: Key of the projection's state.
        user: Prefix of a user's key.
        organization: Prefix of an organization's key.
        member: Prefix of a member's key; ``<organization>:<member>`` follows.
        memberships: Prefixes for ``LUA_READ_MEMBERSHIPS``.
    """

    def __init__(self, tenant_id: str) -> None:
        self.state = state_key(tenant_id)
        self.user = record_key(event_subject("management", tenant_id, "user", ""))
        self.organization = record_key(event_subject("template", tenant_id, "organization", ""))
        self.member = record_key(event_subject("template", tenant_id, "member", ""))
        self.memberships = (organizations_key(tenant_id, ""), self.organization, self.member)
        assignment = record_key(event_subject("management", tenant_id, "assignment", "user", ""))
        self._of_user = RecordKeys((self.state,), (self.user, assignment))

    def of_subject(self, organization_id: str | None = None) -> RecordKeys:
        """Return the keys of a user: state, user, roles; state, organization, user, roles, member with one named."""
        if organization_id is None:
            return self._of_user
        of_member = self.of_member(organization_id)
        return RecordKeys(of_member.keys, self._of_user.prefixes + of_member.prefixes)

    def of_member(self, organization_id: str) -> RecordKeys:
        """Return the keys of a member of an organization: state, organization, member."""
        return RecordKeys((self.state, self.organization + organization_id), (f"{self.member}{organization_id}:",))


def state_key(tenant_id: str) -> str:
    """Return the key of the projection's state."""
    return f"identity:{tenant_id}:directory:{_LAYOUT}"


def organizations_key(tenant_id: str, member_id: str) -> str:
    """Return the key of the set of a member's organizations, which is kept with the member records."""
    return f"identity:{tenant_id}:organizations-of:{member_id}"


def record_key(subject: str) -> str:
    """Return the key of an aggregate's record, ``identity:default:user:<id>``, by the subject of its events."""
    return "identity:" + subject.partition(".")[2].replace(".", ":")
