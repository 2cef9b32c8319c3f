// How heat looks: the colors and the contour of the command line's pictures.

const ANCHORS = [
  [0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85],
  [227, 89, 51], [249, 140, 10], [249, 201, 50], [252, 255, 164],
];
const OPACITY = 0.75;
const CELLS = 240; // along the longer side of the layer, which is enlarged smoothly
const FLAT = 1e-6;

export const MUTED = "saturate(0.5) brightness(0.8)"; // the picture below, so that heat stands out

export function color(value) {
  const place = Math.min(Math.max(value, 0), 1) * (ANCHORS.length - 1);
  const k = Math.min(Math.floor(place), ANCHORS.length - 2);
  return ANCHORS[k].map((c, i) => c + (place - k) * (ANCHORS[k + 1][i] - c));
}

const STEPS = 255;
const TABLE = new Float32Array(Array.from({ length: STEPS + 1 }, (_, k) => color(k / STEPS)).flat());

/** The lowest and highest value of maps that are drawn under one scale. */
export const range = (...maps) => [
  Math.min(...maps.map((m) => Math.min(...m))),
  Math.max(...maps.map((m) => Math.max(...m))),
];

/** A map, resized bilinearly as in `resize_map`, and stretched to 0..1. */
export function heatOf(map, side, width, height, [low, high] = range(map)) {
  const heat = new Float32Array(width * height);
  if (high - low < FLAT) return heat;
  const rows = map.length / side;
  const axis = (k, to, from) => {
    const place = Math.min(Math.max(((k + 0.5) * from) / to - 0.5, 0), from - 1);
    const first = Math.min(Math.floor(place), Math.max(from - 2, 0));
    return [first, Math.min(first + 1, from - 1), place - first];
  };
  for (let y = 0; y < height; y++) {
    const [top, bottom, down] = axis(y, height, rows);
    for (let x = 0; x < width; x++) {
      const [left, right, along] = axis(x, width, side);
      const at = (row) => (1 - along) * map[row * side + left] + along * map[row * side + right];
      heat[y * width + x] = ((1 - down) * at(top) + down * at(bottom) - low) / (high - low);
    }
  }
  return heat;
}

/** Draw a map over its picture: faint and without a contour unless its source is visible. */
export function drawHeat(canvas, shape, answer, scale) {
  const unit = CELLS / Math.max(shape.width, shape.height);
  const width = Math.max(2, Math.round(shape.width * unit));
  const height = Math.max(2, Math.round(shape.height * unit));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  if (!answer?.map || answer.strength < 0.02) return;
  const heat = heatOf(answer.map, answer.side, width, height, scale);
  const image = context.createImageData(width, height);
  const sure = answer.verdict === "visible";
  const thick = Math.max(1, Math.min(width, height) / 130);
  for (let k = 0, to = 0; k < heat.length; k++, to += 4) {
    const value = Math.min(1, Math.max(0, heat[k]));
    const step = 3 * Math.round(value * STEPS);
    const line = sure ? contour(heat, k, width, height, thick) * answer.strength : 0;
    for (let c = 0; c < 3; c++) image.data[to + c] = TABLE[step + c] + line * (255 - TABLE[step + c]);
    const alpha = OPACITY * value * answer.strength;
    image.data[to + 3] = 255 * (alpha + line * (1 - alpha));
  }
  context.putImageData(image, 0, 0);
}

/** How much of a cell the contour at one half covers. */
function contour(heat, k, width, height, thick) {
  const x = k % width, y = (k - x) / width;
  const dx = heat[x < width - 1 ? k + 1 : k] - heat[x ? k - 1 : k];
  const dy = heat[y < height - 1 ? k + width : k] - heat[y ? k - width : k];
  // The height above one half divided by the slope is, to first order, the distance.
  const away = Math.abs(heat[k] - 0.5) / Math.max(Math.hypot(dx, dy) / 2, 1e-6);
  return Math.min(1, Math.max(0, (thick + 1) / 2 - away)) * 0.95;
}

/** The picture, the heat over it and the caption below, as one canvas. */
export function compose(target, source, shape, heat, caption, wide = 960) {
  const scale = Math.min(1, wide / Math.max(shape.width, shape.height));
  const width = 2 * Math.round((shape.width * scale) / 2);
  const height = 2 * Math.round((shape.height * scale) / 2);
  const size = Math.max(13, Math.round(width / 26));
  const bar = 2 * Math.round(size * 1.1);
  if (target.width !== width || target.height !== height + bar)
    Object.assign(target, { width, height: height + bar });
  const context = target.getContext("2d");
  context.fillStyle = "#12141a";
  context.fillRect(0, 0, width, height + bar);
  context.filter = MUTED; // browsers without it draw the picture as it is
  context.drawImage(source, 0, 0, width, height);
  context.filter = "none";
  context.imageSmoothingQuality = "high";
  context.drawImage(heat, 0, 0, width, height);
  context.fillStyle = "#fff";
  context.font = `${size}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.fillText(caption, size * 0.7, height + bar / 2, width - size * 1.4);
  return target;
}
