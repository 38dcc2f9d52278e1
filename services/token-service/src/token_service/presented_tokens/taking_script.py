"""The script that takes a subject token: what it is given, what it does, and what it answers.

The script and its caller use the same names, those of the fields of ``Keys``, ``Arguments`` and ``Answer``. Positions
exist in this module only.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from identity_common.stores.audit_streams import LUA_APPEND, LUA_WAITING
from identity_common.stores.redis import Script
from identity_common.wire.revocations import LUA_IS_WHOLE
from identity_common.wire.subject_tokens import LUA_PRIMARY, LUA_READ_RECORD, LUA_STORED_BY
from token_service.directory.keys import LUA_IS_CURRENT, LUA_IS_MEMBER_WITH_FACTOR, LUA_READ_MEMBERSHIPS, RecordKeys


class Keys(NamedTuple):
    """The keys that the script names.

    Attributes:
        subject_token: The subject token.
        stream: The stream of the audit trail.
        numbering: Of its entries.
        position: Of the copy of the revocations.
    """

    subject_token: str
    stream: str
    numbering: str
    position: str


class Arguments(NamedTuple):
    """The arguments that the script names.

    Attributes:
        replicas: How many replicas must be online; with any, the record must be of this primary.
        backlog: How many entries may wait in the stream.
        attempt_id: Id of the entry of the attempt.
        attempt: The entry, without the members that the script adds.
        outer_ids: Ids of the enclosing impersonations, each with a period behind it: the beginning of the ``jti``.
        begun_by: When the outermost impersonation began at the latest, milliseconds since the epoch.
        randomness: The end of the ``jti``.
        least_position: Which the copy of the revocations must have reached.
        checked: As in ``Requirement``; so are the next two.
        heard_since: Milliseconds since the epoch.
        at_least: As JSON.
        most_memberships: How many memberships to read at most; 0 for none.
        may_lack_factor: 1 without an organization, or if the actor has used a second factor; 0: the organization must
            not require one.
        organizations_of: As in ``DirectoryKeys.memberships``; so are the next two.
        organization: A prefix.
        member: A prefix.
        revocation_of: Prefix of a revocation; the id follows.
        cutoff_of_user: Prefix of the cutoff for a user; the user's id follows.
        cutoffs: How many keys of other cutoffs there are.
    """

    replicas: int
    backlog: int
    attempt_id: str
    attempt: bytes
    outer_ids: str
    begun_by: int
    randomness: str
    least_position: int
    checked: int
    heard_since: int
    at_least: bytes
    most_memberships: int
    may_lack_factor: int
    organizations_of: str
    organization: str
    member: str
    revocation_of: str
    cutoff_of_user: str
    cutoffs: int


class Answer(NamedTuple):
    """The answer of the script; members that belong to another outcome are None.

    Attributes:
        outcome: All but ``taken`` spend nothing. ``unknown``: once enough replicas have acknowledged that this is still
            the primary. ``another-primary``: before a failover, which may have lost that the
            token was spent. ``lacking``: the directory or the copy of the revocations is behind. ``factor-required``:
            the subject is a member of an organization that requires a second factor of the actor.
        revision: Of the record, if something is lacking.
        is_copy_whole: Whether the copy of the revocations lacks nothing, if something is lacking.
        record: The record of the token, once it is taken; the others come with it.
        user_id: Of the user that the script found in it.
        revocation: Of the record's id.
        position: Of the copy of the revocations.
        cutoffs: Of the parties.
        records: Of the user, as in ``SubjectSnapshot``.
        memberships: Of the user; None if not read.
    """

    outcome: Literal[
        b"backlog-full", b"unknown", b"another-primary", b"unreplicated", b"lacking", b"factor-required", b"taken"
    ]
    revision: int
    is_copy_whole: int | None
    record: bytes
    user_id: bytes
    revocation: bytes | None
    position: bytes | None
    cutoffs: Sequence[bytes | None]
    records: Sequence[bytes | None]
    memberships: Sequence[bytes | None] | None


def _named(values: str, names: Sequence[str], *, rest: str) -> str:
    """Return the lines that name the script's keys or arguments, and the list of those that follow."""
    return f"local {', '.join(names)} = unpack({values})\nlocal {rest} = {{unpack({values}, {len(names) + 1})}}\n"


def _answer(**members: str) -> str:
    """Return the line of the script that answers with these members, each given by an expression."""
    return f"return {{{', '.join(members.get(name, 'false') for name in Answer._fields)}}}"


_REFUSE_IF_BACKLOG_IS_FULL: Final = f"""
if waiting(stream, numbering) >= tonumber(backlog) then {_answer(outcome="'backlog-full'")} end
"""
# A primary that was cut off does not know what was minted at its successor, and may believe its replicas online. The
# write, which leaves nothing, has them asked: Redis refuses it, or ``WAIT`` does not return in time.
_FIND_RECORD: Final = f"""
local record = redis.call('GET', subject_token)
if not record then
    if replicas ~= '0' then
        redis.call('SET', subject_token, '', 'PX', 1)
        redis.call('DEL', subject_token)
    end
    {_answer(outcome="'unknown'")}
end
{LUA_READ_RECORD}
"""
_REFUSE_IF_SPENDING_MAY_BE_LOST: Final = f"""
if replicas ~= '0' then
    local primary, online = replication()
    if {LUA_STORED_BY} ~= primary then {_answer(outcome="'another-primary'")} end
    if online < tonumber(replicas) then {_answer(outcome="'unreplicated'")} end
end
"""
# Found are three values that depend on the record, the other cutoffs, and from ``state`` on the records, state first.
_READ_SUBJECT: Final = """
local keys = {revocation_of .. id, position, cutoff_of_user .. user_id, unpack(other_keys)}
for _, prefix in ipairs(record_prefixes) do keys[#keys + 1] = prefix .. user_id end
local found = redis.call('MGET', unpack(keys))
local state = 4 + cutoffs
"""
_LEAVE_IF_LACKING: Final = f"""
local is_copy_whole, least = is_whole(found[2], least_position), cjson.decode(at_least)
least.management = math.max(least.management or 0, revision)
if not is_copy_whole or revision > tonumber(checked) or not is_current(found[state], heard_since, least) then
    {_answer(outcome="'lacking'", revision="revision", is_copy_whole="is_copy_whole or false")}
end
"""
_LEAVE_IF_FACTOR_IS_REQUIRED: Final = f"""
if may_lack_factor == '0' and is_member_with_factor(unpack(found, state)) then
    {_answer(outcome="'factor-required'")}
end
"""
_TAKE: Final = """
redis.call('DEL', subject_token)
"""
_RECORD_ATTEMPT: Final = """
local begun_at = math.min(minted_at, tonumber(begun_by))
local token_id = outer_ids .. id .. string.format('.%012x', begun_at) .. randomness
local members = '"subjectTokenId":' .. cjson.encode(id) .. ',"userId":' .. cjson.encode(user_id)
    .. ',"issuedTokenId":' .. cjson.encode(token_id) .. ','
append(stream, numbering, attempt_id, {members .. attempt})
"""
_READ_MEMBERSHIPS: Final = """
local memberships = most_memberships ~= '0'
    and read_memberships(user_id, most_memberships, organizations_of, organization, member)
"""
_ANSWER_TAKEN: Final = _answer(
    outcome="'taken'",
    record="record",
    user_id="user_id",
    revocation="found[1]",
    position="found[2]",
    cutoffs="{unpack(found, 3, state - 1)}",
    records="{unpack(found, state)}",
    memberships="memberships",
)

SCRIPT: Final = Script(
    LUA_APPEND
    + LUA_WAITING
    + LUA_PRIMARY
    + LUA_READ_MEMBERSHIPS
    + LUA_IS_CURRENT
    + LUA_IS_MEMBER_WITH_FACTOR
    + LUA_IS_WHOLE
    + _named("KEYS", Keys._fields, rest="other_keys")
    + _named("ARGV", Arguments._fields, rest="record_prefixes")
    + _REFUSE_IF_BACKLOG_IS_FULL
    + _FIND_RECORD
    + _REFUSE_IF_SPENDING_MAY_BE_LOST
    + _READ_SUBJECT
    + _LEAVE_IF_LACKING
    + _LEAVE_IF_FACTOR_IS_REQUIRED
    + _TAKE
    + _RECORD_ATTEMPT
    + _READ_MEMBERSHIPS
    + _ANSWER_TAKEN
)


class Take(NamedTuple):
    """The keys and arguments of one run of the script.

    Attributes:
        keys: All keys.
        arguments: All arguments.
    """

    keys: list[str]
    arguments: list[str | bytes | int]

    @classmethod
    def of(cls, keys: Keys, arguments: Arguments, *, cutoffs: Sequence[str], records: RecordKeys) -> "Take":
        """Return one.

        Args:
            keys: Named keys.
            arguments: Named arguments.
            cutoffs: Keys of the cutoffs for the parties that are known before the take.
            records: Keys of the subject's records; the state comes first.
        """
        return cls([*keys, *cutoffs, *records.keys], [*arguments, *records.prefixes])
