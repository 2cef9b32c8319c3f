// The model as the page sees it: a frame and its sound in, an answer out.
import { answerOf } from "./answer.js";
import { cut } from "./sound.js";

export const SIDE = 256; // pixels of the frame that the model takes

export class Engine {
  constructor() {
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.waiting = new Map();
    this.asked = 0;
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = ({ message }) => {
      for (const { reject } of this.waiting.values()) reject(new Error(message || "the model stopped"));
      this.waiting.clear();
    };
  }

  receive({ id, progress, result, error }) {
    if (progress !== undefined) return this.report(progress);
    const { resolve, reject } = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) reject(new Error(error));
    else resolve(result);
  }

  ask(job, transfer = []) {
    const id = ++this.asked;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, ...job }, transfer);
    });
  }

  /** Download and start the model. `report` is called with the bytes that have come. */
  async load(about, report, options = {}) {
    this.about = about;
    this.report = report;
    const threads = Math.max(1, Math.min(4, navigator.hardwareConcurrency || 1));
    const job = { model: `model.onnx?${about.digest}`, bytes: about.bytes, threads, gpu: true, ...options };
    Object.assign(this, await this.ask(job));
  }

  /** The answer for RGBA pixels of 256 x 256 and a sound of any length at 16 kHz. */
  async localize(pixels, wave, center = null) {
    const heard = cut(wave, center);
    const copy = pixels.slice();
    return answerOf(await this.ask({ pixels: copy, wave: heard }, [copy.buffer, heard.buffer]), this.about);
  }
}

const small = new OffscreenCanvas(SIDE, SIDE).getContext("2d", { willReadFrequently: true });

/** A frame of a video, as small as the model takes it. */
export function grab(video) {
  small.imageSmoothingQuality = "high";
  small.drawImage(video, 0, 0, SIDE, SIDE);
  return small.getImageData(0, 0, SIDE, SIDE).data;
}
