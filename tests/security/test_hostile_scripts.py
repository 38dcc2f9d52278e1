"""Scripts that attack the sandbox of the custom-claims function, and an honest call after each.

All of them share one worker, so the honest call meets the process that the hostile script had, or its replacement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from typing import Any, Final

import msgspec
import pytest

from tests.support.waiting import WAIT_S
from token_service.claims_function.sandbox import Claims, ClaimsWorkers, Denied, Limits, Outcome, Problem

LIMITS: Final = Limits(time_ms=150)

TIME: Final = frozenset({"time"})
MEMORY: Final = frozenset({"memory"})
TIME_OR_MEMORY: Final = TIME | MEMORY
"""Which bound is met first depends on the machine."""
FLOOD: Final = frozenset({"microtasks", "time"})
RESULT: Final = frozenset({"result"})
EXCEPTION: Final = frozenset({"exception"})
SYNTAX: Final = frozenset({"syntax"})
NO_FUNCTION: Final = frozenset({"no-function"})

# What a later call must find as the language has it, whatever an earlier one did.
HONEST: Final = """
const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => ({
  ticket: context.ticket,
  audience: token.aud,
  variable: environmentVariables.NAME,
  arguments: Object.keys({ token, context, environmentVariables, api }),
  left: typeof left,
  inherited: ({}).polluted === undefined && [].polluted === undefined && (() => {}).polluted === undefined,
  json: JSON.stringify(JSON.parse('{"a":[1]}')),
  awaited: await Promise.resolve(1).then((one) => [one].map((x) => x + 1)),
  clock: Date.now() > 1.7e12 && Math.random() < 1,
});
"""

LOOPS: Final = {
    "for": "for (;;);",
    "catching everything": "for (;;) { try { for (;;); } catch {} finally { continue; } }",
    "after an await": "await null; do {} while (true);",
    "of a generator": "for (const x of (function* () { for (;;) yield 1; })());",
    "of an async generator": "for await (const x of (async function* () { for (;;); })());",
    "in a comparison": "[1, 2, 3].sort(() => { for (;;); });",
    "in a replacement": "'x'.replace(/x/, () => { for (;;); });",
    "in a getter of the result": "return { get a() { for (;;); } };",
    "in toJSON of the result": "return { toJSON() { for (;;); } };",
    "in a trap of the result": "return new Proxy({}, { ownKeys() { for (;;); } });",
    "in a thenable result": "return { then() { for (;;); } };",
    "in the text of an error": "throw { get message() { for (;;); } };",
    "within the engine, join": "Array(2 ** 32 - 1).join('ab');",
    "within the engine, indexOf": "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);",
}
EXPRESSIONS: Final = {
    "nested quantifiers": "/^(a+)+$/.test('a'.repeat(40) + 'b')",
    "alternatives that overlap": "/^(a|a)*$/.test('a'.repeat(40) + 'b')",
    "back references": r"/^(.*)*\\1\\1c$/.test('a'.repeat(60) + 'b')",
    "in a split": "('a'.repeat(40) + 'b').split(/(?:a*)*c/)",
}
RECURSION: Final = {
    "of a function": ("const f = () => f() + 1; f();", EXCEPTION),
    "of two functions": ("const f = () => g() + 1, g = () => f() + 1; f();", EXCEPTION),
    "of a getter": ("const o = { get a() { return this.a + 1; } }; o.a;", EXCEPTION),
    "of a proxy": ("const p = new Proxy({}, {}); Object.setPrototypeOf(p, p); p.a;", EXCEPTION),
    "of toJSON": ("return { toJSON() { return { a: { toJSON: this.toJSON } }; } };", RESULT),
    "of async functions": ("const f = async () => { await f(); }; await f();", EXCEPTION | TIME_OR_MEMORY),
    "of a bound function": (
        "let f = () => {}; for (let i = 0; i < 1e5; i++) f = f.bind(); f();",
        EXCEPTION | TIME_OR_MEMORY,
    ),
    "of JSON.parse": ("JSON.parse('['.repeat(1e6));", EXCEPTION | TIME_OR_MEMORY),
    "of eval": ("const f = () => eval('f()'); f();", EXCEPTION),
    "of a regular expression": ("new RegExp('('.repeat(1e5) + ')'.repeat(1e5));", EXCEPTION | TIME_OR_MEMORY),
}
PROMISES: Final = {
    "never settled": ("return new Promise(() => {});", RESULT),
    "a race of none": ("return Promise.race([]);", RESULT),
    "awaiting itself": ("const p = (async () => { await null; return p; })(); return p;", EXCEPTION),
    "microtasks that queue microtasks": (
        "const f = () => queueMicrotask(f); f(); await new Promise(() => {});",
        FLOOD,
    ),
    "a chain without an end": (
        "const f = () => Promise.resolve().then(f); f(); await new Promise(() => {});",
        FLOOD,
    ),
    "a loop of awaits": ("for (;;) await null;", FLOOD),
    "a thenable that resolves to itself": ("return { then(resolve) { resolve(this); } };", FLOOD),
    "many at once": ("await Promise.all(Array.from({ length: 1e5 }, async () => { await null; }));", FLOOD | MEMORY),
    "microtasks that throw": (
        "const f = () => { queueMicrotask(f); throw 1; }; queueMicrotask(f); await new Promise(() => {});",
        FLOOD,
    ),
}
BOMBS: Final = {
    "a doubled string": ("let s = 'ab'; for (;;) s = `${s}${s}x`;", TIME_OR_MEMORY | EXCEPTION),
    "a repeated string": ("return { a: 'x'.repeat(2 ** 29) };", MEMORY),
    "a padded string": ("''.padStart(2 ** 29, 'ab');", MEMORY),
    "a split string": ("'x'.repeat(2 ** 22).split('');", TIME_OR_MEMORY),
    "an array": ("const a = []; for (;;) a.push(a.slice());", TIME_OR_MEMORY),
    "an array from a length": ("Array.from({ length: 2 ** 53 - 1 }, () => 'x');", TIME_OR_MEMORY | EXCEPTION),
    "a typed array": ("new Uint8Array(2 ** 30);", MEMORY),
    "many typed arrays": ("const a = []; for (;;) a.push(new Float64Array(2 ** 17));", TIME_OR_MEMORY),
    "a shared buffer": ("new SharedArrayBuffer(2 ** 30);", MEMORY),
    "many shared buffers": ("const a = []; for (;;) a.push(new SharedArrayBuffer(2 ** 20));", TIME_OR_MEMORY),
    "a resizable buffer": (
        "new ArrayBuffer(8, { maxByteLength: 2 ** 40 }).resize(2 ** 39);",
        MEMORY | EXCEPTION,
    ),
    "a map": ("const m = new Map(); for (let i = 0; ; i++) m.set(i, {});", TIME_OR_MEMORY),
    "members": ("const o = {}; for (let i = 0; ; i++) o['k' + i] = i;", TIME_OR_MEMORY),
    "symbols": ("const a = []; for (;;) a.push(Symbol('s'.repeat(1000)));", TIME_OR_MEMORY),
    "a big integer": ("let z = 10n; for (;;) z *= z;", TIME_OR_MEMORY | EXCEPTION),
    "arguments": ("Math.max(...new Array(1e7));", TIME_OR_MEMORY | EXCEPTION),
    "kept by a catch": (
        "const a = []; for (;;) { try { for (;;) a.push(new Uint8Array(2 ** 16)); } catch {} }",
        TIME_OR_MEMORY,
    ),
}
RESULTS: Final = {
    "a long string": ("return { a: 'x'.repeat(20000) };", RESULT),
    "a long string of few characters": ("return { a: '\\u20ac'.repeat(6000) };", RESULT),
    "many members": ("return Object.fromEntries(Array.from({ length: 3000 }, (_, i) => ['k' + i, i]));", RESULT),
    "cyclic": ("const a = {}; a.a = a; return a;", RESULT),
    "17 levels": ("let a = 1; for (let i = 0; i < 17; i++) a = { a }; return a;", RESULT),
    "2000 levels": ("let a = []; for (let i = 0; i < 2000; i++) a = [a]; return { a };", RESULT),
    "sparse": ("const a = []; a.length = 2 ** 32 - 1; return { a };", RESULT | TIME_OR_MEMORY),
    "an array": ("return [1];", RESULT),
    "null": ("return null;", RESULT),
    "nothing": ("", RESULT),
    "a string": ("return '{}';", RESULT),
    "a number": ("return 1;", RESULT),
    "a symbol": ("return Symbol('{');", RESULT),
    "a function": ("return () => {};", RESULT),
    "a big integer as a member": ("return { a: 10n };", RESULT),
    "toJSON that returns an array": ("return { toJSON: () => [] };", RESULT),
    "toJSON that returns nothing": ("return { toJSON() {} };", RESULT),
    "a getter that throws": ("return { get a() { throw new Error('mine'); } };", RESULT),
    "a proxy that throws": ("return new Proxy({}, { get() { throw 1; } });", EXCEPTION),
    "a revoked proxy": ("const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy;", EXCEPTION),
    "an unpaired surrogate": ("return { a: '\\ud800' };", RESULT),
    "an unpaired surrogate as a name": ("return { '\\udfff': 1 };", RESULT),
}
ERRORS: Final = {
    "a symbol": "throw Symbol('s');",
    "null": "throw null;",
    "a revoked proxy": "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); throw proxy;",
    "members that throw": "throw { get message() { throw 1; }, get stack() { throw 2; } };",
    "members that are written as lists": "BigInt.prototype.toJSON = () => [1]; throw { name: 0n, message: 0n };",
    "a long message": "throw new Error('x'.repeat(1e5));",
    "an unpaired surrogate": "throw new Error('\\ud800');",
    "a stack of its own": "const e = new Error('m'); e.stack = 'at f (<input>:9e9:x)'; throw e;",
}
SCRIPTS: Final = {
    "a loop outside the function": ("for (;;);", TIME),
    "a getter in place of the function": (
        "Object.defineProperty(globalThis, 'getCustomJwtClaims', { get() { for (;;); } });",
        TIME,
    ),
    "an exception outside the function": (
        "throw new SyntaxError('x'); const getCustomJwtClaims = () => ({});",
        EXCEPTION,
    ),
    "a syntax error at run time": ("eval('let x = ;');", EXCEPTION),
    "no function": ("const getCustomJwtClaims = { call() {} };", NO_FUNCTION),
    "a class": ("class getCustomJwtClaims {}", EXCEPTION),
    "closing brackets": ("})(); hostile(); (() => {", SYNTAX),
    "brackets without an end": ("(" * 60_000, SYNTAX | EXCEPTION),
    "a NUL character": ("const getCustomJwtClaims = () => ({});\0", SYNTAX),
    "an unpaired surrogate": ("'\ud800'", SYNTAX),
    "an import": ("import fs from 'fs'; const getCustomJwtClaims = () => ({});", SYNTAX),
    "import.meta": ("const getCustomJwtClaims = () => ({ a: import.meta });", SYNTAX),
}

NAMES: Final = (
    "require module process global Buffer std os scriptArgs print console Deno Bun fetch XMLHttpRequest WebSocket "
    "Worker WebAssembly setTimeout setInterval setImmediate performance navigator window document gc Realm "
    "steadCall outcome"
)

# Collects the functions on the stack, where an engine like V8 hands them out.
FRAMES: Final = (
    "const frames = []; Error.prepareStackTrace = (_, sites) => "
    "{ for (const site of sites) frames.push(site.getFunction()); return sites; };"
)

# Attacks that do no harm: the script returns as if it were alone.
HARMLESS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "pollute Object.prototype": ("Object.prototype.polluted = 1; return { a: 1 };", {"a": 1}),
    "pollute Array.prototype": ("Array.prototype.polluted = 1; return { a: [1] };", {"a": [1]}),
    "pollute Function.prototype": (
        "Object.getPrototypeOf(async () => {}).polluted = 1; Function.prototype.polluted = 1; return {};",
        {},
    ),
    "leave a global": ("globalThis.left = context; return { left: typeof left };", {"left": "object"}),
    "redefine JSON": (
        "globalThis.JSON = { parse: () => ({}), stringify: () => '{\"forged\":1}' }; return { a: 1 };",
        {"a": 1},
    ),
    "replace JSON.stringify": ("JSON.stringify = () => '{\"forged\":1}'; return { a: 1 };", {"a": 1}),
    "redefine Promise": ("globalThis.Promise = class { then() {} }; return { a: await 1 };", {"a": 1}),
    "replace Promise.prototype.then": (
        "Promise.prototype.then = (f) => f({ forged: 1 }); Promise.resolve = null; return { a: await 1 };",
        {"a": 1},
    ),
    "replace the iterator of arrays": (
        "Array.prototype[Symbol.iterator] = () => { throw 1; }; return { a: 1 };",
        {"a": 1},
    ),
    "setters for the harness": (
        "for (const name of ['outcome', 'denied', 'api', 'token', '0']) "
        "Object.defineProperty(Object.prototype, name, { set() { throw 1; }, configurable: true }); return { a: 1 };",
        {"a": 1},
    ),
    "freeze everything": (
        "for (const name of Object.getOwnPropertyNames(globalThis)) { const value = globalThis[name]; "
        "if (value?.prototype) Object.freeze(value.prototype); } Object.freeze(globalThis); return { a: 1 };",
        {"a": 1},
    ),
    "delete every global": (
        "const g = globalThis; for (const name of Object.getOwnPropertyNames(g)) delete g[name]; return { a: 1 };",
        {"a": 1},
    ),
    "replace eval and Function": (
        "globalThis.eval = globalThis.Function = () => { throw 1; }; return { a: 1 };",
        {"a": 1},
    ),
    "look for host objects": (
        f"return {{ found: '{NAMES}'.split(' ').filter((name) => name in globalThis) }};",
        {"found": []},
    ),
    "the global object of Function": (
        "return { a: typeof Function('return this')().process, "
        "b: typeof api.denyAccess.constructor('return this')().std };",
        {"a": "undefined", "b": "undefined"},
    ),
    "import files and modules": (
        "const refused = []; for (const name of ['fs', 'os', 'std', 'qjs:std', 'qjs:os', 'node:fs', '/etc/passwd', "
        "'file:///etc/passwd', 'https://localhost/x.js']) await import(name).catch(() => refused.push(name)); "
        "return { refused: refused.length };",
        {"refused": 9},
    ),
    "callers of the function": (
        "const found = []; try { found.push((function () { return arguments.callee.caller; })()); } catch {} "
        "try { found.push(api.denyAccess.caller); } catch {} return { found: found.filter(Boolean).length };",
        {"found": 0},
    ),
    "callers of the function in a prepared stack": (
        f"{FRAMES} return {{ stack: typeof new Error().stack, found: frames.length }};",
        {"stack": "string", "found": 0},
    ),
    "callers of the function in a captured stack": (
        f"{FRAMES} const o = {{}}; try {{ Error.captureStackTrace(o); }} catch {{}} "
        "return { stack: typeof o.stack, found: frames.length };",
        {"stack": "undefined", "found": 0},
    ),
    "callers of toJSON in a prepared stack": (
        f"{FRAMES} return {{ toJSON: () => ({{ stack: typeof new Error().stack, found: frames.length }}) }};",
        {"stack": "string", "found": 0},
    ),
    "callers of a microtask, by an accessor": (
        "let found = 0; Object.defineProperty(Error, 'prepareStackTrace', { get() { return () => found++; } }); "
        "await null; try { null.x; } catch (error) { error.stack; } return { found };",
        {"found": 0},
    ),
    "paths in a stack": ("return { path: /[/]|[.]py/.test(new Error().stack) };", {"path": False}),
    "block the process": (
        "try { Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0); } catch (e) { return { a: e.name }; }",
        {"a": "TypeError"},
    ),
    "a timer finer than a millisecond": ("return { whole: Number.isInteger(Date.now()) };", {"whole": True}),
    "symbols and functions as members": (
        "return { [Symbol('s')]: 1, a: Symbol('s'), b() {}, c: undefined, d: 1 };",
        {"d": 1},
    ),
    "exotic objects as members": (
        "return { a: new Map([[1, 2]]), b: /x/, c: new Date(0), d: NaN, e: Infinity, f: new Proxy([1], {}), g: -0 };",
        {"a": {}, "b": {}, "c": "1970-01-01T00:00:00.000Z", "d": None, "e": None, "f": [1], "g": 0},
    ),
    "a member called __proto__": ('return JSON.parse(\'{"__proto__": {"a": 1}}\');', {"__proto__": {"a": 1}}),
    "toJSON for every object": ("Object.prototype.toJSON = () => ({ mine: 1 }); return {};", {"mine": 1}),
    "a thenable": ("return { then(resolve) { resolve({ a: 1 }); resolve({ a: 2 }); } };", {"a": 1}),
    "16 levels": ("return { a: JSON.parse('['.repeat(15) + ']'.repeat(15)) };", {"a": [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]}),
    "deny access after the result": (
        "let p = Promise.resolve(); for (let i = 0; i < 99; i++) p = p.then(() => {}); "
        "p.then(() => api.denyAccess('late')); return { a: 1 };",
        {"a": 1},
    ),
    "change the arguments": (
        "token.aud = 'forged'; context.ticket = 0; api.denyAccess = () => {}; return {};",
        {},
    ),
    "registries of finalizers": (
        "new FinalizationRegistry(() => { for (;;); }).register({}, 1); return { a: 1 };",
        {"a": 1},
    ),
}

DENIALS: Final[dict[str, tuple[str, str | None]]] = {
    "twice": ("try { api.denyAccess('one'); } catch {} api.denyAccess('two');", "one"),
    "caught": ("try { api.denyAccess('no'); } catch {} return { a: 1 };", "no"),
    "in a promise": ("Promise.resolve().then(() => api.denyAccess('no')).catch(() => {}); return {};", "no"),
    "and never settled": ("try { api.denyAccess('no'); } catch {} return new Promise(() => {});", "no"),
    "in toJSON": ("return { toJSON() { api.denyAccess('no'); } };", "no"),
    "with no message": ("api.denyAccess();", None),
    "with an object": ("api.denyAccess({ toString() { throw 1; } });", None),
    "with a long message": ("api.denyAccess('x'.repeat(1e6));", "x" * 1000),
    "with an unpaired surrogate": ("api.denyAccess('a\\ud800b');", "a?b"),
    "and forged by the callers in a prepared stack": (
        f"{FRAMES} try {{ api.denyAccess('no'); }} catch (error) {{ error.stack; }} "
        "for (const f of frames) try { f(() => ({}), '{}', 9); f(); } catch {} return { a: 1 };",
        "no",
    ),
    "with Error replaced": (
        "globalThis.Error = class { constructor() { api = 1; for (;;); } }; api.denyAccess('no');",
        "no",
    ),
    "with JSON replaced": ("JSON.stringify = () => '\"forged\"'; api.denyAccess('no');", "no"),
    "with String.prototype replaced": ("String.prototype.toJSON = () => 'forged'; api.denyAccess('no');", "no"),
}

tickets = count(1)


@pytest.fixture(scope="module")
async def worker() -> AsyncIterator[ClaimsWorkers]:
    async with ClaimsWorkers(LIMITS, 1) as workers:
        yield workers


def function(body: str) -> str:
    return f"const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => {{ {body} }};"


async def run(workers: ClaimsWorkers, script: str, ticket: int = 0) -> Outcome:
    data = {"token": {"aud": "a"}, "context": {"ticket": ticket}, "environmentVariables": {"NAME": "value"}}
    async with await workers.reserve(within_s=WAIT_S) as slot:
        return await slot.run(script, msgspec.json.encode(data))


async def the_next_call_is_right(workers: ClaimsWorkers) -> None:
    ticket = next(tickets)
    assert await run(workers, HONEST, ticket) == Claims(
        {
            "ticket": ticket,
            "audience": "a",
            "variable": "value",
            "arguments": ["token", "context", "environmentVariables", "api"],
            "left": "undefined",
            "inherited": True,
            "json": '{"a":[1]}',
            "awaited": [2],
            "clock": True,
        }
    )


async def fails(workers: ClaimsWorkers, script: str, reasons: frozenset[str]) -> None:
    outcome = await run(workers, script)
    assert isinstance(outcome, Problem), outcome
    # Without memory for the error itself, the engine throws null.
    is_null = "memory" in reasons and (outcome.reason, outcome.message) == ("exception", "null")
    assert outcome.reason in reasons or is_null, outcome
    assert len(outcome.message) <= 300
    await the_next_call_is_right(workers)


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
async def test_an_endless_loop_is_stopped(worker: ClaimsWorkers, body: str) -> None:
    await fails(worker, function(body), TIME)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
async def test_a_catastrophic_regular_expression_is_stopped(worker: ClaimsWorkers, expression: str) -> None:
    await fails(worker, function(f"return {{ a: {expression} }};"), TIME)


@pytest.mark.parametrize(("body", "reasons"), RECURSION.values(), ids=RECURSION)
async def test_endless_recursion_fails(worker: ClaimsWorkers, body: str, reasons: frozenset[str]) -> None:
    await fails(worker, function(body), reasons)


@pytest.mark.parametrize(("body", "reasons"), PROMISES.values(), ids=PROMISES)
async def test_promises_are_bounded(worker: ClaimsWorkers, body: str, reasons: frozenset[str]) -> None:
    await fails(worker, function(body), reasons)


@pytest.mark.parametrize(("body", "reasons"), BOMBS.values(), ids=BOMBS)
async def test_memory_is_bounded(worker: ClaimsWorkers, body: str, reasons: frozenset[str]) -> None:
    await fails(worker, function(body), reasons)


@pytest.mark.parametrize(("body", "reasons"), RESULTS.values(), ids=RESULTS)
async def test_only_a_small_json_object_is_a_result(worker: ClaimsWorkers, body: str, reasons: frozenset[str]) -> None:
    await fails(worker, function(body), reasons)


@pytest.mark.parametrize("body", ERRORS.values(), ids=ERRORS)
async def test_whatever_is_thrown_is_an_exception(worker: ClaimsWorkers, body: str) -> None:
    await fails(worker, function(body), EXCEPTION)


@pytest.mark.parametrize(("script", "reasons"), SCRIPTS.values(), ids=SCRIPTS)
async def test_a_script_that_cannot_be_called_fails(
    worker: ClaimsWorkers, script: str, reasons: frozenset[str]
) -> None:
    await fails(worker, script, reasons)


@pytest.mark.parametrize(("body", "claims"), HARMLESS.values(), ids=HARMLESS)
async def test_an_attack_reaches_nothing(worker: ClaimsWorkers, body: str, claims: dict[str, Any]) -> None:
    assert await run(worker, function(body)) == Claims(claims)
    await the_next_call_is_right(worker)


@pytest.mark.parametrize(("body", "message"), DENIALS.values(), ids=DENIALS)
async def test_a_denial_stands(worker: ClaimsWorkers, body: str, message: str | None) -> None:
    assert await run(worker, function(body)) == Denied(message)
    await the_next_call_is_right(worker)


async def test_a_denial_before_an_endless_loop_costs_the_worker(worker: ClaimsWorkers) -> None:
    (before,) = worker.pids
    outcome = await run(worker, function("try { api.denyAccess('no'); } catch { for (;;); }"))
    # On a busy machine the kernel's timer may end the process before the engine's.
    assert outcome in (Denied("no", out_of_time=True), Problem("time", f"it ran longer than {LIMITS.time_ms} ms"))
    await the_next_call_is_right(worker)
    assert worker.pids != [before]
