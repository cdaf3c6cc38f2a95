// Turns each inspector's links into tabs: click, arrow keys, Home and End. Without this script all panels are shown.
for (const inspector of document.querySelectorAll(".inspector")) {
  const list = inspector.querySelector(".picker");
  const tabs = [...list.querySelectorAll("a")];
  const panels = [...inspector.querySelectorAll(".panel")];
  const select = (number, focus) => {
    panels.forEach((panel, each) => {
      panel.hidden = each !== number;
      if (panel.hidden) panel.querySelector("audio")?.pause();
    });
    tabs.forEach((tab, each) => {
      tab.setAttribute("aria-selected", each === number);
      tab.tabIndex = each === number ? 0 : -1;
    });
    if (focus) tabs[number].focus();
  };
  list.setAttribute("role", "tablist");
  tabs.forEach((tab, number) => {
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panels[number].id);
    panels[number].setAttribute("role", "tabpanel");
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      select(number, true);
    });
  });
  list.addEventListener("keydown", (event) => {
    const now = tabs.indexOf(document.activeElement);
    const last = tabs.length - 1;
    const next = {
      ArrowRight: now === last ? 0 : now + 1,
      ArrowDown: now === last ? 0 : now + 1,
      ArrowLeft: now === 0 ? last : now - 1,
      ArrowUp: now === 0 ? last : now - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    select(next, true);
  });
  select(0, false);
}

// Moves a line over spectrogram and alignment while a sound plays; a click there plays from that point.
for (const sound of document.querySelectorAll(".sound")) {
  const audio = sound.querySelector("audio");
  const seconds = Number(sound.dataset.seconds);
  const follow = () => {
    sound.classList.add("begun");
    sound.style.setProperty("--now", `${(100 * audio.currentTime) / seconds}%`);
    if (!audio.paused) requestAnimationFrame(follow);
  };
  for (const event of ["play", "seeked"]) audio.addEventListener(event, follow);
  for (const view of sound.querySelectorAll(".view")) {
    view.addEventListener("click", (event) => {
      const { left, width } = view.getBoundingClientRect();
      audio.currentTime = (seconds * (event.clientX - left)) / width;
      audio.play();
    });
  }
}
