// Describes what the operator's function threw, as JSON. Evaluated after the script has run: syntax and arguments only.
(error, stringify) => {
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
}
