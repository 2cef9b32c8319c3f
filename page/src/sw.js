// Keeps the page for visits without a network. What it keeps is named by the page's version.
const { version, files } = __KNOWN__;
const CACHE = `soundspot-${version}`;
const LATER = /\.onnx$|webgpu|asyncify/; // the model is kept by the page; WebGPU only where it is used

self.addEventListener("install", (event) => {
  const now = files.filter((name) => !LATER.test(name));
  const asked = now.map((name) => new Request(name, { cache: "no-cache" }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(asked)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const ours = (name) => name.startsWith("soundspot-") && name !== "soundspot-models" && name !== CACHE;
  const clean = caches.keys().then((all) => Promise.all(all.filter(ours).map((name) => caches.delete(name))));
  event.waitUntil(clean.then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== self.location.origin) return;
  if (url.pathname.endsWith(".onnx")) return;
  event.respondWith(answer(event.request, url));
});

async function answer(request, url) {
  const cache = await caches.open(CACHE);
  const key = url.pathname.endsWith("/") ? new URL("index.html", url).href : url.href;
  const kept = await cache.match(key, { ignoreSearch: true });
  const response = kept ?? (await fetch(request));
  if (!kept && LATER.test(url.pathname) && response.ok) cache.put(key, response.clone());
  // Hosts that cannot set these two headers get threads for WASM from the second visit on.
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  return new Response(response.body, { status: response.status, headers });
}
