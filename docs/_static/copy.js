// Adds a button to every block of code that copies it.
document.addEventListener("DOMContentLoaded", () => {
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const place = document.body.appendChild(document.createElement("textarea")); // pages on http have no clipboard
    place.value = text;
    place.select();
    document.execCommand("copy");
    place.remove();
  };
  for (const code of document.querySelectorAll("div.highlight pre")) {
    const text = code.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await copy(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Refused by the browser";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    code.parentElement.append(button);
  }
});
