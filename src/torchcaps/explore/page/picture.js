// The image: test images in a strip, a pad to draw on, pictures of one's own, sliders.

import { byId, el, walkable } from "./dom.js";
import { MOVES } from "./link.js";

export function sliders(state, changed) {
  for (const { key, name, least, most, step } of MOVES) {
    const input = el("input", { id: `move-${key}`, type: "range", min: least, max: most, step });
    input.addEventListener("input", () => {
      state[key] = Number(input.value);
      showSliders(state);
      changed();
    });
    byId("moves").append(el("label", { for: input.id }, name), input, el("output", { id: `${input.id}-is`, for: input.id }));
  }
}

export function showSliders(state) {
  for (const { key, step, unit } of MOVES) {
    byId(`move-${key}`).value = state[key];
    byId(`move-${key}-is`).textContent = `${step < 1 ? state[key].toFixed(2) : state[key]}${unit}`;
  }
}

export function strip(images, chosen, pick) {
  const buttons = images.map(({ png, label }, at) => thumbnail(png, `Image ${at + 1}: ${label}`, () => pick(at), { "aria-pressed": at === chosen, tabindex: at === Math.max(chosen, 0) ? 0 : -1 }));
  byId("strip").replaceChildren(...buttons);
}

export function thumbnail(png, name, onclick, more = {}) {
  return el("button", { class: "thumb", type: "button", title: name, "aria-label": name, onclick, ...more }, el("img", { src: png, alt: "" }));
}

walkable(byId("strip"), ".thumb");

// Draws with finger, mouse or keys; `drawn` is told now and then, and at the end of each line.
export function pad(drawn) {
  const canvas = byId("pad");
  const brush = canvas.getContext("2d");
  let [x, y, down, dirty] = [140, 60, false, false];
  const wipe = () => {
    brush.fillStyle = "#000";
    brush.fillRect(0, 0, 280, 280);
    Object.assign(brush, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
  };
  const line = (toX, toY) => {
    brush.beginPath();
    brush.moveTo(x, y);
    brush.lineTo(toX, toY);
    brush.stroke();
    [x, y, dirty] = [toX, toY, true];
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * 280, ((event.clientY - box.top) / box.height) * 280];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    down = true;
    [x, y] = at(event);
    line(x + 0.1, y);
  });
  canvas.addEventListener("pointermove", (event) => down && line(...at(event)));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (down = false));
  canvas.addEventListener("keydown", (event) => {
    let [right, below] = { ArrowRight: [10, 0], ArrowLeft: [-10, 0], ArrowDown: [0, 10], ArrowUp: [0, -10], " ": [0, 0] }[event.key] ?? [null];
    if (right === null) return;
    event.preventDefault();
    if (event.key === " ") down = !down;
    [right, below] = [Math.min(270, Math.max(10, x + right)), Math.min(270, Math.max(10, y + below))];
    if (down) line(right + 0.1, below);
    else [x, y] = [right, below];
  });
  const send = () => {
    if (!dirty || canvas.hidden) return;
    dirty = false;
    drawn(blobOf(canvas.toDataURL()));
  };
  setInterval(send, 200);
  wipe();
  return { wipe };
}

// Pictures that are chosen, dropped or pasted.
export function receive(taken) {
  const [file, stage] = [byId("file"), byId("stage")];
  byId("choose").addEventListener("click", () => file.click());
  file.addEventListener("change", () => file.files.length && taken(file.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      stage.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) taken(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length) taken(event.clipboardData.files[0]);
  });
}

export const blobOf = (address) => new Blob([Uint8Array.from(atob(address.split(",")[1]), (letter) => letter.charCodeAt(0))]);
