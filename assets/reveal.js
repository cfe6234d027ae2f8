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
