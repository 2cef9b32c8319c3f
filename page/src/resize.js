// Antialiased bicubic interpolation of bytes, the same as torch's and Pillow's, for photos.

/** The pixels that each new pixel is made of, with weights of 16 bits. */
function weights(from, to) {
  const scale = from / to;
  const wide = Math.max(scale, 1);
  const rows = Array.from({ length: to }, (_, k) => {
    const center = (k + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - 2 * wide + 0.5));
    const last = Math.min(from, Math.trunc(center + 2 * wide + 0.5));
    const row = Array.from({ length: last - first }, (_, j) => cubic((first + j - center + 0.5) / wide));
    const sum = row.reduce((a, b) => a + b);
    return { first, row: row.map((w) => w / sum) };
  });
  let bits = 0;
  const largest = Math.max(...rows.flatMap(({ row }) => row));
  while (bits < 22 && Math.round(largest * 2 ** (bits + 1)) < 2 ** 15) bits += 1;
  for (const one of rows) one.row = one.row.map((w) => Math.round(w * 2 ** bits));
  return { rows, bits };
}

function cubic(x) {
  const a = -0.5;
  x = Math.abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/** RGBA pixels at another size. */
export function resize(pixels, width, height, side) {
  const across = pass(pixels, width, height, weights(width, side), side, (y, x) => y * width + x);
  const down = (x, y) => y * side + x;
  return pass(across, height, side, weights(height, side), side, down, true);
}

function pass(pixels, _from, lines, { rows, bits }, side, place, turned = false) {
  const out = new Uint8ClampedArray(4 * side * lines);
  const half = 2 ** (bits - 1);
  for (let line = 0; line < lines; line++)
    for (let k = 0; k < side; k++) {
      const { first, row } = rows[k];
      let r = half, g = half, b = half;
      for (let j = 0; j < row.length; j++) {
        const at = 4 * place(line, first + j);
        r += row[j] * pixels[at];
        g += row[j] * pixels[at + 1];
        b += row[j] * pixels[at + 2];
      }
      const to = 4 * (turned ? k * lines + line : line * side + k);
      out[to] = Math.floor(r / 2 ** bits);
      out[to + 1] = Math.floor(g / 2 ** bits);
      out[to + 2] = Math.floor(b / 2 ** bits);
      out[to + 3] = 255;
    }
  return out;
}
