// Tells the server which keys, buttons and sticks of a gamepad are held: as text, written into a
// text field of the page, which viser sends as it sends what is typed there. CODES, FIELD and TABLE
// are set by controls_page.py. Nothing is taken from the page while the table of keys is not shown.
(() => {
  const page = Math.random().toString(36).slice(2);
  const down = new Set();
  const presses = {};
  let pad = { held: [], axes: [] };
  let told = "";

  const shown = () => document.getElementById(TABLE) !== null;

  function field() {
    const label = [...document.querySelectorAll("label")].find((l) => l.textContent === FIELD);
    let row = label;
    while (row && !row.querySelector("input")) row = row.parentElement;
    if (!row) return null;
    row.parentElement.style.display = "none";
    return row.querySelector("input");
  }

  function tell() {
    const input = field();
    const held = [...down, ...pad.held];
    for (const key of document.querySelectorAll(`#${TABLE} [data-code]`))
      key.classList.toggle("held", key.dataset.code.split(" ").some((c) => held.includes(c)));
    const text = JSON.stringify({ page, held, presses, axes: pad.axes });
    if (!input || text === told) return;
    told = text;
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, text);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function press(code) {
    presses[code] = (presses[code] ?? 0) + 1;
  }

  function release() {
    down.clear();
    pad = { held: [], axes: [] };
    tell();
  }

  const typing = (target) =>
    target.isContentEditable || target.matches?.("textarea, input:not([type=checkbox])");

  function onKey(event) {
    if (event.key === "Meta") release(); // keys that go up while it is down are not told of
    if (!CODES.includes(event.code)) return;
    if (event.type === "keyup") {
      if (!down.delete(event.code)) return; // it went down as text
    } else {
      if (!shown() || typing(event.target)) return;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (!event.repeat) press(event.code);
      down.add(event.code);
    }
    // Else the camera would move, and the button that was clicked last would be clicked again.
    event.preventDefault();
    event.stopImmediatePropagation();
    tell();
  }

  function poll() {
    requestAnimationFrame(poll);
    const found = shown() && document.hasFocus() ? [...(navigator.getGamepads?.() ?? [])] : [];
    const gamepad = found.find((g) => g && g.connected);
    const held = [];
    gamepad?.buttons.forEach((b, i) => b.pressed && held.push(`Pad${i}`));
    for (const code of held) if (!pad.held.includes(code)) press(code);
    const axes = (gamepad?.axes ?? []).slice(0, 4).map((way) => Math.round(way * 1e3) / 1e3);
    pad = { held, axes };
    if (gamepad || told.includes("Pad") || !told.includes('"axes":[]')) tell();
  }

  window.addEventListener("keydown", onKey, true);
  window.addEventListener("keyup", onKey, true);
  window.addEventListener("blur", release);
  document.addEventListener("visibilitychange", () => document.hidden && release());
  // Out of the field that was typed in last, where keys are text.
  window.addEventListener("pointerdown", (event) => {
    if (event.target.matches?.("canvas")) document.activeElement?.blur();
  }, true);
  poll();
  return { hide: field };
})()
