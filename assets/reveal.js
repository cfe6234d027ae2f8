document.querySelectorAll("button.reveal").forEach((button) => {
  const field = document.getElementById(button.getAttribute("aria-controls"));
  const show = (shown) => {
    field.type = shown ? "text" : "password";
    button.setAttribute("aria-pressed", String(shown));
  };
  button.addEventListener("click", () => show(field.type === "password"));
  field.form.addEventListener("submit", () => show(false));
  button.hidden = false;
});
document.querySelectorAll("[data-strength-of]").forEach((hint) => {
  const field = document.getElementById(hint.dataset.strengthOf);
  const { least, missing, weak, fair, strong } = hint.dataset;
  const rule = hint.innerHTML;
  field.addEventListener("input", () => {
    const typed = [...field.value];
    if (typed.length === 0) hint.innerHTML = rule;
    else if (typed.length < least) hint.textContent = missing.replace("{}", least - typed.length);
    else if (new Set(typed).size < 5) hint.textContent = weak;
    else hint.textContent = typed.length < 14 ? fair : strong;
  });
});
