/* Comfort only: every page works without this script. */
"use strict";

for (const button of document.querySelectorAll(".reveal")) {
  const field = document.getElementById(button.getAttribute("aria-controls"));
  const show = (isShown) => {
    field.type = isShown ? "text" : "password";
    button.setAttribute("aria-pressed", String(isShown));
  };
  button.addEventListener("click", () => show(field.type === "password"));
  field.form.addEventListener("submit", () => show(false)); // a browser remembers what is sent from a text field
  button.hidden = false;
}

const search = document.getElementById("search");
const count = document.getElementById("count");
const noMatch = document.getElementById("no-match");
const choices = [...document.querySelectorAll("fieldset .choice")];
const boxOf = (choice) => choice.querySelector("input");
const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

const showCount = () => {
  const picked = choices.filter((choice) => boxOf(choice).checked).length;
  count.textContent = count.dataset.text.trim().replace("{picked}", String(picked));
};

if (count) {
  for (const choice of choices) choice.addEventListener("change", showCount);
  for (const [decision, isPicked] of [["select-all", true], ["select-none", false]]) {
    const button = document.querySelector(`button[value="${decision}"]`);
    button?.addEventListener("click", (event) => {
      event.preventDefault();
      for (const choice of choices) if (!choice.hidden) boxOf(choice).checked = isPicked;
      showCount();
    });
  }
  showCount();
}

if (search) {
  search.addEventListener("input", () => {
    const wanted = plain(search.value.trim());
    for (const choice of choices) choice.hidden = !plain(choice.textContent).includes(wanted);
    noMatch.hidden = choices.some((choice) => !choice.hidden);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would press the first button of the form
  });
  search.hidden = false;
}
