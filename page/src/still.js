// A photo under one sound or two, and sounds from files or the microphone.
import { SIDE } from "./engine.js";
import { listen } from "./live.js";
import { resize } from "./resize.js";
import { Ear, QUIET, decode, loudness } from "./sound.js";

/** A photo, turned upright, and as the model takes it. */
export async function openPhoto(blob) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob);
  } catch {
    throw new Error("This browser cannot read that picture.");
  }
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = width === SIDE && height === SIDE ? data : resize(data, width, height, SIDE);
  return { bitmap, width, height, pixels };
}

/** The sound of a file, or a sentence that says why there is none. */
export async function openSound(blob) {
  const wave = await decode(blob);
  if (!wave) throw new Error("This browser finds no sound in that file.");
  if (loudness(wave, 0, wave.length).peak < QUIET) throw new Error("That sound is silent.");
  return wave;
}

/** Three seconds of the microphone; `report` is called with the seconds so far. */
export async function record(report) {
  const stream = await listen(null);
  const ear = await Ear.open(stream);
  try {
    while (ear.seconds < 3) {
      report(ear.seconds);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const wave = ear.last();
    if (loudness(wave, 0, wave.length).peak < QUIET) throw new Error("The microphone heard nothing.");
    return wave;
  } finally {
    ear.close();
    for (const track of stream.getTracks()) track.stop();
  }
}
