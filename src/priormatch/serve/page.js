// Refuses files that are too large or of other kinds before they are sent, with a sentence that stays until there is
// audio; Gradio's own words on them go away after some seconds.
() => {
  const place = () => document.getElementById("refused");
  const reason = (file) => {
    const { megabytes, suffixes, kinds } = place().dataset;
    if (!suffixes.split(" ").some((suffix) => file.name.toLowerCase().endsWith(suffix)))
      return `${file.name}: is not of a kind that is heard here; give a ${kinds} file.`;
    if (file.size > megabytes * 2 ** 20)
      return `${file.name}: has ${(file.size / 2 ** 20).toFixed(1)} MB, and at most ${megabytes} MB are taken here: give a part of it, or use \`priormatch transcribe\`.`;
  };
  const check = (event, files) => {
    const why = [...files].map(reason).find(Boolean);
    place().textContent = why ?? "";
    if (!why) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true })); // or it would stay lit
  };
  const isFile = (event) => event.target.type === "file";
  addEventListener("click", (event) => {
    if (isFile(event)) event.target.accept = place().dataset.suffixes.replaceAll(" ", ",");
  }, true);
  addEventListener("change", (event) => {
    if (isFile(event)) check(event, event.target.files);
  }, true);
  addEventListener("drop", (event) => check(event, event.dataTransfer?.files ?? []), true);
}
