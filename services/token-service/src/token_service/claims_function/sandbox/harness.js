// Calls the operator's function in a fresh context and keeps what it came to.
//
// Evaluated before the operator's script, to a function that only the worker holds. It uses syntax and what it captured
// here, never a global or a prototype that the script may have replaced by then: `await` rather than `then`, no iteration,
// no method of a value that the script can reach.
(() => {
  "use strict";
  const { parse, stringify } = JSON;
  delete globalThis.performance; // a timer finer than a millisecond

  let outcome; // a letter and a JSON text: Claims, Denied, an eXception, or a failure to write the Result
  let denied = false;
  let denial;

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
    if (!denied) {
      denied = true;
      denial = typeof message === "string" ? message : null;
    }
    throw new Error("access denied"); // ends the function; catching it changes nothing
  };

  const steadCall = async (getCustomJwtClaims, input, longest) => {
    let phase = "X";
    try {
      const { token, context, environmentVariables } = parse(input);
      const api = { denyAccess: steadDenyAccess };
      const claims = await getCustomJwtClaims({ token, context, environmentVariables, api });
      phase = "R";
      const text = denied ? "" : `${stringify(claims)}`;
      if (!denied) outcome = text.length > longest ? `R{"message":"it is longer than ${longest} bytes"}` : "C" + text;
    } catch (error) {
      if (!denied) outcome = phase + describe(error);
    }
    if (denied) outcome = "D" + stringify(denial);
  };

  return (getCustomJwtClaims, input, longest) => {
    if (getCustomJwtClaims !== undefined) steadCall(getCustomJwtClaims, input, longest);
    return outcome;
  };
})()
