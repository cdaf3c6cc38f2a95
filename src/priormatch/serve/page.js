// Refuses files that are too large or of unsupported types before the upload, with a message that stays until there is
// audio; Gradio's own message disappears after some seconds.
() => {
  const place = () => document.getElementById("refused");
  const reason = (file) => {
    const { megabytes, suffixes, kinds } = place().dataset;
    if (!suffixes.split(" ").some((suffix) => file.name.toLowerCase().endsWith(suffix)))
      return `${file.name}: is not a supported type of file; give a ${kinds} file.`;
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
}
