// The model, beside the page: on the graphics card if there is one, else on WASM threads.

/** The model's bytes: kept since the last visit, or downloaded with progress. */
async function fetchModel(url, total, report) {
  const store = await globalThis.caches?.open("soundspot-models").catch(() => null);
  const kept = await store?.match(url);
  if (kept) return new Uint8Array(await kept.arrayBuffer());
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the model could not be downloaded (${response.status})`);
  const bytes = new Uint8Array(total);
  let done = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { value, done: end } = await reader.read();
    if (end) break;
    bytes.set(value, done);
    done += value.length;
    report(done);
  }
  if (done !== total) throw new Error("the download of the model was cut short");
  for (const old of (await store?.keys()) ?? []) await store.delete(old);
  await store?.put(url, new Response(bytes)).catch(() => null); // a full disk: fetched again
  return bytes;
}

async function start({ model, bytes: total, threads, gpu }) {
  const url = new URL(model, self.location.href).href;
  const bytes = await fetchModel(url, total, (done) => postMessage({ progress: done }));
  if (gpu && (await navigator.gpu?.requestAdapter().catch(() => null))) {
    try {
      return await open("./ort/ort.webgpu.bundle.min.mjs", bytes, "webgpu", threads);
    } catch (error) {
      console.warn("no WebGPU:", error.message);
    }
  }
  return open("./ort/ort.wasm.bundle.min.mjs", bytes, "wasm", threads);
}

async function open(runtime, bytes, provider, threads) {
  const ort = await import(runtime);
  ort.env.wasm.wasmPaths = new URL("./ort/", self.location.href).href;
  ort.env.wasm.numThreads = self.crossOriginIsolated ? threads : 1;
  const session = await ort.InferenceSession.create(bytes, { executionProviders: [provider] });
  return { ort, session, provider, threads: ort.env.wasm.numThreads };
}

let ready = null;

async function answer({ pixels, wave }) {
  const { ort, session } = await ready;
  const side = Math.sqrt(pixels.length / 4);
  const rgb = new Uint8Array(3 * side * side);
  for (let k = 0, to = 0; k < pixels.length; k += 4) {
    rgb[to++] = pixels[k];
    rgb[to++] = pixels[k + 1];
    rgb[to++] = pixels[k + 2];
  }
  const found = await session.run({
    frame: new ort.Tensor("uint8", rgb, [1, side, side, 3]),
    waveform: new ort.Tensor("float32", wave, [1, wave.length]),
  });
  const { map, scores, threshold, known } = found;
  return {
    map: map.data.slice(),
    side: map.dims[2],
    scores: scores.data.slice(),
    patches: scores.dims[1],
    threshold: threshold.data[0],
    known: known.data[0] > 0.5,
  };
}

onmessage = async ({ data: { id, ...job } }) => {
  try {
    if (job.model) {
      ready = start(job);
      const { provider, threads } = await ready;
      postMessage({ id, result: { provider, threads } });
    } else postMessage({ id, result: await answer(job) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
