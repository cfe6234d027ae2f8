const form = document.querySelector("form");
if (form) HTMLFormElement.prototype.submit.call(form);
