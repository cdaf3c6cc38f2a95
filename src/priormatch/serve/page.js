// Refuses files that are too large or of unsupported types before the upload, with a message that stays until there is
// audio; Gradio's own message disappears after some seconds.
() => {
  const place = () => document.getElementById("refused");
  const reason = (file) => {
    const { megabytes, suffixes, kinds } = place().dataset;
    if (!suffixes.split(" ").some((suffix) => file.name.toLowerCase().endsWith(suffix)))
      return `${file.name}: is not a supported type of file; provide a ${kinds} file.`;
    if (file.size > megabytes * 2 ** 20)
      return `${file.name}: has ${(file.size / 2 ** 20).toFixed(1)} MB, but at most ${megabytes} MB are allowed here: give a part of it, or use \`priormatch transcribe\`.`;
  };
  const check = (event, files) => {
    const why = [...files].map(reason).find(Boolean);
    place().textContent = why ?? "";
    if (!why) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true })); // else it stays highlighted
  };
  const isFile = (event) => event.target.type === "file";
  addEventListener("click", (event) => {
    if (isFile(event)) event.target.accept = place().dataset.suffixes.replaceAll(" ", ",");
  }, true);
  addEventListener("change", (event) => {
    if (isFile(event)) check(event, event.target.files);
  }, true);
  addEventListener("drop", (event) => check(event, event.dataTransfer?.files ?? []), true);

  // A click on a time or a word plays the recording from there; the word that is heard is highlighted.
  const recording = () => document.getElementById("recording");
  addEventListener("click", (event) => {
    const place = event.target.closest?.("[data-at]");
    if (!place || !recording()) return;
    recording().currentTime = Number(place.dataset.at);
    recording().play();
  });
  const follow = (event) => {
    if (event.target !== recording()) return;
    const now = event.target.currentTime;
    for (const place of document.querySelectorAll(".word, .clock"))
      place.classList.toggle("now", Number(place.dataset.at) <= now && now < Number(place.dataset.until));
  };
  addEventListener("timeupdate", follow, true);
  addEventListener("seeked", follow, true);
  addEventListener("error", (event) => {
    if (event.target === recording()) document.getElementById("unplayable").hidden = false;
  }, true);

  // Outside of this machine and https, browsers have no clipboard for scripts, but still the old command.
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const place = document.body.appendChild(document.createElement("textarea"));
    place.value = text;
    place.select();
    document.execCommand("copy");
    place.remove();
  };
  addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const said = button.parentElement.querySelector(".said");
    try {
      await copy(button.dataset.copy);
      said.textContent = "copied";
    } catch {
      said.textContent = "the browser refused to copy";
    }
  });
}
