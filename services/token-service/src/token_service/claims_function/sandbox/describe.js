// Describes what the operator's function threw, as JSON. Evaluated after the script has run: syntax and arguments only.
(error, stringify) => {
  try {
    if (typeof error !== "object" || error === null) return stringify({ __proto__: null, message: `${error}` });
    const { name = "", message = "", stack } = error;
    return stringify({ __proto__: null, name: `${name}`, message: `${message}`, stack: `${stack}` });
  } catch {
    return "{}"; // a symbol, or an error whose own members throw
  }
}
