// Appended to a report by test_page.py: what a reader sees of it, before and after the filters were used.
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const numbers = text => text.match(/[\d.]+/g).map(Number);
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = numbers(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 0, 255];
}
const faint = [], seen = new Set();
for (const e of document.querySelectorAll("body *:not(script)")) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || ["INPUT", "SELECT"].includes(e.tagName);
  if (!own || !e.checkVisibility()) continue;
  const [a, b] = [luminance(numbers(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
  seen.add(e.tagName + "." + e.className);
  if ((a + 0.05) / (b + 0.05) < LEGIBLE) faint.push(e.tagName + "." + e.className + " " + (a + 0.05) / (b + 0.05));
}
const visible = selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility()).map(e => e.textContent);
const state = () => ({
  cells: visible("#cells tbody tr > :first-child"), tests: visible("#tests tbody tr > :first-child"),
  heads: visible("#cells thead th"), shown: part("shown").textContent, hash: location.hash,
});
function set(id, value) {
  part(id).value = value;
  part(id).dispatchEvent(new Event("input", {bubbles: true}));
}
const answer = {
  faint, seen: [...seen], back: getComputedStyle(document.body).backgroundColor, wide: document.body.scrollWidth > innerWidth,
};
answer.all = state();
set("words", "scal");
answer.words = state();
set("words", "");
set("status", "unproven");
answer.status = state();
set("status", "");
set("type", "int64");
answer.type = state();
document.querySelector("#cells i.unproven").click();
answer.detail = part("detail").textContent;
part("filters").reset();
setTimeout(() => {
  answer.reset = state();
  document.documentElement.innerHTML = "<body><pre id=answer></pre></body>";
  document.getElementById("answer").textContent = JSON.stringify(answer);
}, 50);
