// Passkeys (Web Authentication Level 3). The page has the options of the ceremony, and its form brings the answer back.
(() => {
  if (!window.PublicKeyCredential) return;
  const bytes = (text) =>
    Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replaceAll("+", "-")
      .replaceAll("/", "_")
      .replaceAll("=", "");
  const credentials = (known = "") =>
    known.split(" ").flatMap((id) => (id ? [{ type: "public-key", id: bytes(id) }] : []));
  const answer = ({ id, rawId, type, authenticatorAttachment, response }) => {
    const members = { transports: response.getTransports?.() };
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"])
      if (response[name]) members[name] = text(response[name]);
    return JSON.stringify({ id, rawId: text(rawId), type, authenticatorAttachment, response: members });
  };
  const request = ({ rpId, known }, challenge) => ({
    challenge: bytes(challenge),
    rpId,
    allowCredentials: credentials(known),
    userVerification: "required",
    timeout: 300000,
  });

  // A form of the account page takes a passkey in the place of the password.
  const proof = document.querySelector("[data-proof]");
  for (const field of document.querySelectorAll("input[name=assertion]")) {
    const { dataset: data } = proof;
    const { form } = field;
    const [problem, button] = [...proof.children].map((part) => part.cloneNode(true));
    field.after(problem, button);
    button.addEventListener("click", async () => {
      if (performance.now() > 280000) return location.reload();
      try {
        const publicKey = request(data, data.proof);
        field.value = `${data.sealed} ${answer(await navigator.credentials.get({ publicKey }))}`;
        form.elements["current-password"]?.removeAttribute("required");
        [...form.querySelectorAll("button")].at(-1).click();
      } catch {
        problem.hidden = false;
      }
    });
  }

  const place = document.querySelector("[data-passkey]");
  if (!place) return;
  const { dataset: data } = place;
  const form = place.closest("form");
  const button = place.querySelector("button");
  const problem = place.querySelector(".problem");
  const name = document.querySelector("input[autocomplete=username]");
  const signal = (name, options) => PublicKeyCredential[name]?.({ rpId: data.rpId, ...options }).catch(() => {});
  const send = (credential) => {
    form.elements.passkey.value = answer(credential);
    form.submit();
  };

  let waiting;
  const get = async (mediation) => {
    waiting?.abort();
    const own = (waiting = new AbortController());
    const publicKey = request(data, data.challenge);
    try {
      send(await navigator.credentials.get({ mediation, signal: own.signal, publicKey }));
    } catch {
      if (mediation === "conditional" || waiting !== own) return;
      problem.setAttribute("role", "alert");
      problem.hidden = false;
      offer();
    }
  };
  // Autofill: the browser offers passkeys in the field for the user name.
  const offer = async () => {
    if (name && (await PublicKeyCredential.isConditionalMediationAvailable?.())) get("conditional");
  };
  const create = async () => {
    if (!form.reportValidity()) return;
    const publicKey = {
      challenge: bytes(data.challenge),
      rp: { id: data.rpId, name: data.rpName },
      user: { id: bytes(data.userId), name: data.userName, displayName: data.displayName },
      pubKeyCredParams: data.algorithms.split(" ").map((alg) => ({ type: "public-key", alg: Number(alg) })),
      authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
      excludeCredentials: credentials(data.known),
      attestation: "none",
      timeout: 300000,
    };
    try {
      send(await navigator.credentials.create({ publicKey }));
    } catch (error) {
      document.getElementById("notice")?.remove();
      if (error.name === "InvalidStateError") problem.textContent = problem.dataset.exists;
      problem.hidden = error.name === "NotAllowedError";
    }
  };

  // The form for the password says whether this device can keep a passkey, so that the service may offer one.
  const tellPlatform = async () => {
    const password = document.querySelector("input[autocomplete=current-password]");
    if (!password || !(await PublicKeyCredential.isUserVerifyingPlatformAuthenticatorAvailable())) return;
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "platform_authenticator", value: "1" });
    password.form.append(field);
  };

  // The challenge is good for five minutes. A page on which nobody has typed is loaded anew.
  let isOld = false;
  const renew = () => location.replace(data.again);
  if (data.challenge) {
    setTimeout(() => {
      isOld = true;
      const fields = [...document.querySelectorAll("input:not([type=hidden])")];
      if (fields.every((field) => field.value === field.defaultValue)) renew();
    }, 280000);
    const begin = data.passkey === "get" ? () => get() : create;
    button.addEventListener("click", () => (isOld ? renew() : begin()));
  }
  place.hidden = false;
  if (data.passkey === "get") {
    if (name) name.autocomplete = "username webauthn";
    if (data.offer !== undefined) tellPlatform().catch(() => {});
    if (data.unknown) signal("signalUnknownCredential", { credentialId: data.unknown });
    offer();
  } else {
    const { userId } = data;
    const allAcceptedCredentialIds = data.known.split(" ").filter(Boolean);
    signal("signalAllAcceptedCredentials", { userId, allAcceptedCredentialIds });
    signal("signalCurrentUserDetails", { userId, name: data.userName, displayName: data.displayName });
  }
})();
