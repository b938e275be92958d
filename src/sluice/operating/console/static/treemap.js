// Areas as parts of a rectangle, close to squares (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000).

import { bytes, many, svg } from "./dom.js";

export function squarified(sizes, x, y, width, height) {
  const total = sizes.reduce((sum, each) => sum + each, 0);
  const areas = sizes.map((each) => (each * width * height) / total);
  const rects = [];
  let [left, top, w, h] = [x, y, width, height];
  let start = 0;
  while (start < areas.length) {
    const side = Math.min(w, h);
    let end = start + 1;
    let sum = areas[start];
    const worst = (least, most, all) => Math.max((side * side * most) / (all * all), (all * all) / (side * side * least));
    while (end < areas.length && worst(areas[end], areas[start], sum + areas[end]) <= worst(areas[end - 1], areas[start], sum)) {
      sum += areas[end];
      end += 1;
    }
    const thick = sum / side;
    let along = 0;
    for (let n = start; n < end; n += 1) {
      const long = areas[n] / thick;
      rects.push(w >= h ? [left, top + along, thick, long] : [left + along, top, long, thick]);
      along += long;
    }
    [left, top, w, h] = w >= h ? [left + thick, top, w - thick, h] : [left, top + thick, w, h - thick];
    start = end;
  }
  return rects;
}

// Five shades by the mean size of a part's files: the smaller they are, the stronger the colour.
const shade = (part) => Math.min(4, Math.max(0, Math.floor(Math.log10(part.bytes / part.files / 1e4))));

export function treemap(parts, width, height) {
  const shown = parts.filter((part) => part.bytes > 0);
  const rects = squarified(shown.map((part) => part.bytes), 0, 0, width, height);
  return svg("svg", { class: "treemap", width, height, role: "img", "aria-label": "Parts of the table by their size; the list below has the same" },
    shown.map((part, n) => {
      const [x, y, w, h] = rects[n];
      const room = Math.floor((w - 12) / 6.6);
      const name = part.name.length <= room ? part.name : room > 5 ? `${part.name.slice(0, room - 1)}…` : "";
      return svg("g", { class: `part shade-${shade(part)}` }, svg("title", {}, `${part.name}: ${bytes(part.bytes)} in ${many(part.files, "file")}`),
        svg("rect", { x: x + 0.75, y: y + 0.75, width: Math.max(0, w - 1.5), height: Math.max(0, h - 1.5), rx: 2 }),
        name && h > 22 ? svg("text", { x: x + 7, y: y + 17 }, name) : null,
        name && h > 40 && w > 60 ? svg("text", { class: "size", x: x + 7, y: y + 33 }, bytes(part.bytes)) : null);
    }));
}
