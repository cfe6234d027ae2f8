const frame = document.querySelector("iframe");
for (const button of document.querySelectorAll("button[data-width]")) {
  button.addEventListener("click", () => {
    frame.style.inlineSize = button.dataset.width ? `${button.dataset.width}px` : "";
  });
}
const look = async () => {
  try {
    const state = await (await fetch("/state", { cache: "no-store" })).text();
    if (state !== document.body.dataset.state) return location.reload();
  } catch {
    // The preview was stopped; it may come back.
  }
  setTimeout(look, 500);
};
look();
