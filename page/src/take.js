// What a visitor takes along: a picture, a short clip, the events as JSON.
import { RATE } from "./sound.js";

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export const pictureOf = (canvas) =>
  new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture failed."))), "image/png"),
  );

export async function copy(canvas) {
  if (!navigator.clipboard?.write) throw new Error("This browser cannot copy pictures: save it instead.");
  await navigator.clipboard.write([new ClipboardItem({ "image/png": pictureOf(canvas) })]);
}

const TYPES = ["video/webm;codecs=vp9,opus", "video/webm", "video/mp4"];

/**
 * Record some seconds while they play, with their sound and what `paint` draws.
 * @param video Plays them; it is put back afterwards.
 */
export async function recordClip(video, wave, start, end, canvas, paint) {
  const type = TYPES.find((t) => globalThis.MediaRecorder?.isTypeSupported(t));
  if (!type) throw new Error("This browser cannot record clips: save the picture instead.");
  const back = { time: video.currentTime, muted: video.muted, paused: video.paused };
  video.pause();
  video.muted = true;
  await new Promise((resolve) => {
    video.addEventListener("seeked", resolve, { once: true });
    video.currentTime = start;
  });
  paint();
  const context = new AudioContext();
  const heard = wave.subarray(Math.round(start * RATE), Math.round(end * RATE));
  const buffer = context.createBuffer(1, Math.max(1, heard.length), RATE);
  buffer.copyToChannel(heard, 0);
  const source = new AudioBufferSourceNode(context, { buffer });
  const speakers = context.createMediaStreamDestination();
  source.connect(speakers);
  const tracks = [...canvas.captureStream(25).getTracks(), ...speakers.stream.getTracks()];
  const recorder = new MediaRecorder(new MediaStream(tracks), { mimeType: type });
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  const stopped = new Promise((resolve) => (recorder.onstop = resolve));
  recorder.start();
  source.start();
  await video.play();
  while (video.currentTime < end && !video.ended && !video.paused) {
    paint();
    await new Promise(requestAnimationFrame);
  }
  recorder.stop();
  await stopped;
  context.close();
  tracks.forEach((track) => track.stop());
  video.pause();
  Object.assign(video, { currentTime: back.time, muted: back.muted });
  if (!back.paused) video.play();
  return new Blob(parts, { type: type.split(";")[0] });
}
