// Calls the operator's function in a fresh context and records its outcome.
//
// Evaluated before the operator's script, to a function that only the worker holds: with the input and the longest result it
// calls the operator's function; with nothing it returns the outcome so far, with null the detail of the outcome, and with
// `describe.js` the text of what was thrown. It uses syntax and what it captured here, never a global or a prototype that the
// script may have replaced by then: `await` rather than `then`, no iteration, no method of a value that the script can reach.
//
// It is parsed for every call, so what only a failure needs is in `describe.js`. A block, and not a function that is called at
// once: the engine reads what is in parentheses twice, to find out whether it is the head of an arrow function.
"use strict";
{
  const { parse, stringify } = JSON, DenialError = Error;
  delete globalThis.performance; // a timer finer than a millisecond
  delete Error.prepareStackTrace; // it gets the functions of this file, which are callers of the script
  delete Error.captureStackTrace;

  let outcome; // the claims as JSON; or No function, Denied, an eXception, a failure to write the Result, a Long result
  let detail; // the message of a denial, as JSON; never concatenated here, because the binding cannot read the engine's ropes

  const steadDenyAccess = message => {
    const json = stringify(typeof message === "string" ? message : null);
    if (outcome === undefined) {
      outcome = "D";
      detail = json;
    }
    throw new DenialError("access denied"); // ends the function; catching it changes nothing
  };

  const steadCall = async (input, longest) => {
    let failure = "X";
    try {
      if (typeof getCustomJwtClaims !== "function") return void (outcome = "N");
      const claims = await getCustomJwtClaims({ ...parse(input), api: { denyAccess: steadDenyAccess } });
      failure = "R";
      const json = stringify(claims) ?? "";
      outcome ??= json.length > longest ? "L" : json;
    } catch (error) {
      if (outcome === undefined) {
        outcome = failure;
        detail = error; // what was thrown
      }
    }
  };

  (input, longest) => {
    if (input === undefined) return outcome;
    if (input === null) return detail;
    if (longest === undefined) return input(detail, stringify);
    steadCall(input, longest);
    return outcome;
  };
}
