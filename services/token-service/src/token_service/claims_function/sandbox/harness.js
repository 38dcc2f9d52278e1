// Calls the operator's function in a fresh context and keeps what it came to.
//
// Evaluated before the operator's script, to a function that only the worker holds: with a function and its input it calls that
// one and returns the outcome, with null the outcome so far, with nothing the outcome's text, and with `describe.js` the text of
// what was thrown. It uses syntax and what it captured here, never a global or a prototype that the script may have replaced by
// then: `await` rather than `then`, no iteration, no method of a value that the script can reach.
//
// It is parsed for every call, so what only a failure needs is in `describe.js`.
(() => {
  "use strict";
  const parse = JSON.parse, stringify = JSON.stringify, DenialError = Error;
  delete globalThis.performance; // a timer finer than a millisecond
  delete Error.prepareStackTrace; // it gets the functions of this file, which are callers of the script
  delete Error.captureStackTrace;

  let outcome; // Claims, Denied, an eXception, a failure to write the Result, a result that is too Long
  let text; // JSON; never concatenated here, because the binding cannot read the ropes that the engine makes then
  let thrown;
  const settle = (letter, json) => {
    if (outcome === undefined) {
      outcome = letter;
      text = json;
    }
  };

  const steadDenyAccess = (message) => {
    settle("D", stringify(typeof message === "string" ? message : null));
    throw new DenialError("access denied"); // ends the function; catching it changes nothing
  };

  const steadCall = async (getCustomJwtClaims, input, longest) => {
    let failure = "X";
    try {
      const claims = await getCustomJwtClaims({ ...parse(input), api: { denyAccess: steadDenyAccess } });
      failure = "R";
      const json = stringify(claims) ?? "";
      settle(json.length > longest ? "L" : "C", json);
    } catch (error) {
      thrown = error;
      settle(failure);
    }
  };

  return (callee, input, longest) => {
    if (callee === undefined) return text;
    if (callee === null) return outcome;
    if (input === undefined) return callee(thrown, stringify);
    steadCall(callee, input, longest);
    return outcome;
  };
})()
