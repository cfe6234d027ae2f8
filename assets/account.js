// A browser may keep the page as it was and show it again after a sign-out: it has to ask for it anew.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.replace(location.pathname + location.search);
});
// What was done is said once, not at every reload.
const address = new URL(location);
if (address.searchParams.has("done")) {
  address.searchParams.delete("done");
  address.searchParams.delete("proof");
  history.replaceState(null, "", address);
}
// On a narrow screen, the links to the sections are longer than the line.
document.querySelector(".sections [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
for (const button of document.querySelectorAll("[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
