// Copies the text of an element. In a command, $NAME stands for the text of the element of that id.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.lastElementChild;
  const { textContent: name } = label;
  button.addEventListener("click", async () => {
    const text = source.textContent.replace(/\$([A-Z_]+)/g, (all, id) => document.getElementById(id)?.textContent ?? all);
    await navigator.clipboard.writeText(text);
    label.textContent = button.dataset.copied;
    setTimeout(() => {
      label.textContent = name;
    }, 2000);
  });
  button.hidden = false;
}
