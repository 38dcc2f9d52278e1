"""Create something and use it in the very next request, without a header: one round of everything."""

from identity_common.identifiers import new_id
from tests.support.world import World, outcome


def create_then_use(world: World) -> dict[str, object]:
    """Return what was answered where the answer was not the good one: empty when all of it was."""
    management = world.management
    wrong: dict[str, object] = {}

    def expect(what: str, answer: object, good: object) -> None:
        if answer != good:
            wrong[what] = answer

    application = world.client("Traditional")
    expect("application and secret", outcome(world.exchange("sub_x", client=application))[0], 400)

    user = world.user()
    expect("user", outcome(world.exchange(world.subject_token(user), client=application)), (200, None))

    resource = management.resources.create("New", f"https://{new_id()}.example.com/api")
    expect("resource", outcome(world.exchange(world.subject_token(user), resource=resource.indicator)), (200, None))

    early = world.subject_token(user)
    scope = management.resources.create_scope(resource.id, "read:new")
    role = management.roles.create(f"role {resource.id}", "new", "User", [scope.id])
    management.users.assign_roles(user, [role.id])
    answer = world.exchange(early, resource=resource.indicator, scope="read:new openid")
    expect("assignment", (answer.status_code, answer.json().get("scope")), (200, "read:new"))

    second = management.resources.create_scope(resource.id, "write:new")
    management.roles.assign_scopes(role.id, [second.id])
    answer = world.exchange(world.subject_token(user), resource=resource.indicator, scope="read:new write:new")
    expect("scope", (answer.status_code, answer.json().get("scope")), (200, "read:new write:new"))

    machine = world.client("MachineToMachine", exchange=False)
    expect("machine", outcome(world.client_credentials(machine)), (200, None))
    machine_role = management.roles.create(f"machine role {resource.id}", "new", "MachineToMachine", [scope.id])
    management.applications.assign_roles(machine.id, [machine_role.id])
    answer = world.client_credentials(machine, resource=resource.indicator, scope="read:new")
    expect("machine's assignment", (answer.status_code, answer.json().get("scope")), (200, "read:new"))
    management.roles.assign_scopes(machine_role.id, [second.id])
    answer = world.client_credentials(machine, resource=resource.indicator, scope="write:new")
    expect("machine's scope", (answer.status_code, answer.json().get("scope")), (200, "write:new"))

    actor = world.user()
    expect("actor", outcome(world.with_actor(world.userinfo_token(actor))), (200, None))
    return wrong
