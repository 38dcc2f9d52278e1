// Calls the operator's function in a fresh context and keeps what it came to.
//
// Evaluated before the operator's script, to a function that only the worker holds: with a function it calls that one and
// returns the outcome, with null the outcome so far, with nothing the outcome's text. It uses syntax and what it captured
// here, never a global or a prototype that the script may have replaced by then: `await` rather than `then`, no iteration, no
// method of a value that the script can reach.
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  delete globalThis.performance; // a timer finer than a millisecond

  let outcome; // Claims, Denied, an eXception, a failure to write the Result, a result that is too Long
  let text; // JSON; never concatenated here, because the binding cannot read the ropes that the engine makes then
  const settle = (letter, json) => {
    if (outcome === undefined) {
      outcome = letter;
      text = json;
    }
  };

  const describe = (error) => {
    try {
      if (typeof error !== "object" || error === null) return stringify({ __proto__: null, message: `${error}` });
      return stringify({
        __proto__: null,
        name: `${error.name}`,
        message: `${error.message}`,
        stack: `${error.stack}`,
      });
    } catch {
      return "{}"; // a symbol, or an error whose own members throw
    }
  };

  const steadDenyAccess = (message) => {
    settle("D", stringify(typeof message === "string" ? message : null));
    throw new Error("access denied"); // ends the function; catching it changes nothing
  };

  const steadCall = async (getCustomJwtClaims, input, longest) => {
    let failure = "X";
    try {
      const { token, context, environmentVariables } = parse(input);
      const api = { denyAccess: steadDenyAccess };
      const claims = await getCustomJwtClaims({ token, context, environmentVariables, api });
      failure = "R";
      const json = stringify(claims) ?? "";
      settle(json.length > longest ? "L" : "C", json);
    } catch (error) {
      settle(failure, describe(error));
    }
  };

  return (getCustomJwtClaims, input, longest) => {
    if (getCustomJwtClaims === undefined) return text;
    if (getCustomJwtClaims !== null) steadCall(getCustomJwtClaims, input, longest);
    return outcome;
  };
})()
