/* Passkeys: asks the browser for one, or has it create one, and sends its response with the form of the page. */
"use strict";

{
  const form = document.getElementById("passkey");
  const { challenge, rp, credentials, user } = form.dataset;
  const problems = document.querySelectorAll("[data-passkey-problem]");
  const remember = document.querySelector('input[type="checkbox"][name="remember"]');

  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (each) => each.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const descriptors = credentials.split(" ").filter(Boolean).map((id) => ({ type: "public-key", id: bytes(id) }));

  const assertion = () => ({
    challenge: bytes(challenge),
    rpId: rp,
    allowCredentials: descriptors,
    userVerification: "required",
  });

  const creation = () => ({
    challenge: bytes(challenge),
    rp: { id: rp, name: form.dataset.rpName },
    user: { id: bytes(user), name: form.dataset.userName, displayName: form.dataset.userDisplayName },
    pubKeyCredParams: [-8, -7, -257].map((alg) => ({ type: "public-key", alg })),
    excludeCredentials: descriptors,
    authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
    attestation: "none",
  });

  /* Not toJSON(): older browsers have none, and that of some password managers fails. */
  const serialized = ({ id, rawId, type, response, authenticatorAttachment }) => {
    const names = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
    const parts = names.filter((name) => response[name]).map((name) => [name, text(response[name])]);
    const transports = response.getTransports?.();
    return JSON.stringify({
      id,
      rawId: text(rawId),
      type,
      authenticatorAttachment,
      clientExtensionResults: {},
      response: { ...Object.fromEntries(parts), ...(transports && { transports }) },
    });
  };

  const send = (credential) => {
    form.elements.credential.value = serialized(credential);
    if (remember) form.elements.remember.disabled = !remember.checked;
    form.submit();
  };

  let asked = new AbortController();
  const ask = async (mediation) => {
    asked.abort(); // a browser answers one request at a time
    asked = new AbortController();
    const { signal } = asked;
    for (const problem of problems) problem.hidden = true;
    try {
      const { credentials: store } = navigator;
      send(await (user
        ? store.create({ publicKey: creation(), signal })
        : store.get({ publicKey: assertion(), mediation, signal })));
    } catch (error) {
      if (signal.aborted || mediation === "conditional") return;
      const kind = error.name === "InvalidStateError" ? "exists" : "failed";
      for (const problem of problems) problem.hidden = problem.dataset.passkeyProblem !== kind;
    }
  };

  if (window.PublicKeyCredential) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      ask("optional");
    });
    for (const each of document.querySelectorAll("[data-without-passkeys]")) each.hidden = true;
    form.hidden = false;
    if (form.dataset.autofill !== undefined) {
      PublicKeyCredential.isConditionalMediationAvailable?.().then((isAvailable) => isAvailable && ask("conditional"));
    }
  }
}
