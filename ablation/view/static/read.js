"use strict";

// y and n answer the next open question of a pair.
const form = document.querySelector("[data-questions]");
if (form) {
  document.addEventListener("keydown", (event) => {
    const value = { y: "yes", n: "no" }[event.key];
    if (!value || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.tagName === "TEXTAREA") return;
    const open = [...form.querySelectorAll("fieldset")].find((one) => !one.querySelector("input:checked"));
    const choice = open && [...open.querySelectorAll("input")].find((one) => one.value === value);
    if (!choice) return;
    event.preventDefault();
    choice.checked = true;
    const next = [...form.querySelectorAll("fieldset")].find((one) => !one.querySelector("input:checked"));
    (next ? choice : form.querySelector("button")).focus();
  });
}
