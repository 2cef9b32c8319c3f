// What the page does without asking the server. gradio runs this once, when the page is loaded.
() => {
  const find = (query) => document.querySelector(query);
  const narrow = () => window.innerWidth <= 720;

  const KINDS = { video: "a video", picture: "a picture", sound: "a sound", own: "a sound" };
  const TYPES = { video: "video", picture: "image", sound: "audio", own: "audio" };  // as gradio's

  // Where the files go, and how programs call this page, depend on its address.
  const HERE = ["localhost", "127.0.0.1", "[::1]"];
  const replace = (query, text, other) => {
    const place = find(query);
    if (place?.textContent.includes(text)) place.textContent = place.textContent.replace(text, other);
  };
  const address = () => {
    if (!HERE.includes(location.hostname)) {
      replace("#where", "Nothing leaves this computer.",
        "Files stay on this server until you close the page.");
    }
    const page = (location.origin + location.pathname).replace(/\/$/, "");
    if (page !== "http://127.0.0.1:7860") replace(".help pre code", "http://127.0.0.1:7860", page);
  };

  // gradio says "Drop Image Here - or - Click to Upload"; on a phone nothing can be dropped.
  const touch = matchMedia("(pointer: coarse)").matches;
  const plain = (text) => {
    const kind = KINDS[text.closest("#video, #picture, #sound, #own")?.id];
    if (!kind || text.dataset.plain) return;
    const words = touch ? ["", `Tap to choose ${kind}`] : [`Drop ${kind} here`, "or click to choose"];
    const lines = [...text.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    lines.forEach((line, k) => { line.data = words[k] ?? ""; });
    text.dataset.plain = "yes";
  };

  // What gradio's own parts lack: names that contain the visible text, and one sentence per error.
  const repair = () => {
    for (const button of document.querySelectorAll(".upload-container[aria-label]")) {
      button.removeAttribute("aria-label");
    }
    for (const button of document.querySelectorAll("button:is(.playback, .capture-button)[aria-label]")) {
      const text = button.innerText.trim(), label = button.getAttribute("aria-label");
      if (text && !label.startsWith(text)) button.setAttribute("aria-label", `${text}. ${label}`);
    }
    for (const text of document.querySelectorAll("[data-testid=upload-text]")) plain(text);
    address();
    for (const toast of document.querySelectorAll(".toast-body:not(.ours)")) {
      if (toast.innerText.includes("not playable")) toast.classList.add("ours");
    }
  };
  repair();

  // On a phone the answer is below the question: go there as soon as there is work, or an error,
  // and stay there while the page grows and shrinks, until the visitor moves it.
  const toAnswer = (behavior) => {
    if (narrow()) find("#answer")?.scrollIntoView({ behavior, block: "start" });
  };
  let working = false, failed = null, following = false;
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
    document.addEventListener(kind, () => { following = false; }, { capture: true, passive: true });
  }
  const follow = () => {
    if (!following || working) return;
    if (Math.abs(find("#answer").getBoundingClientRect().top) > 50) toAnswer("instant");
  };
  new ResizeObserver(follow).observe(document.body);
  new MutationObserver(() => {
    repair();
    const now = Boolean(find("#looking .working")), error = find("#answer .note.error");
    if ((now && !working) || (error && error !== failed)) {
      following = true;
      toAnswer("smooth");
    }
    [working, failed] = [now, error];
    follow();
  }).observe(document.body, { childList: true, subtree: true });
  document.addEventListener("click", (event) => {
    if (event.target.closest("#show")) toAnswer("smooth");
  });

  // The strength of the map is handled by the browser alone.
  document.addEventListener("input", (event) => {
    if (!event.target.closest(".strength")) return;
    document.documentElement.style.setProperty("--strength", event.target.value / 100);
  });

  // A file of the wrong kind is refused with a message before gradio sees it and silently drops it.
  const complain = (sentence) => {
    const place = find("#complaint");
    if (place) place.textContent = sentence;
    if (sentence && narrow()) place?.scrollIntoView({ block: "center" });
  };
  const refuse = (event, files) => {
    const zone = event.target.closest?.("#video, #picture, #sound, #own");
    if (!zone || !files?.length) return;
    const [file] = files, [type] = file.type.split("/");
    complain("");
    if (type === TYPES[zone.id]) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    if (event.type === "change") event.target.value = "";
    const other = { image: "a picture", audio: "a sound", video: "a video" }[type];
    const is = other ? `is ${other}, not ${KINDS[zone.id]}` : `is not ${KINDS[zone.id]}`;
    let advice = other && zone.id === "video" ? ": use the other tab" : "";
    if (!type) advice = ", as far as this browser can tell";
    complain(`${file.name} ${is}${advice}.`);
  };
  document.addEventListener("change", (event) => refuse(event, event.target.files), true);
  document.addEventListener("drop", (event) => refuse(event, event.dataTransfer?.files), true);

  // A recording says how long it is only when it has been read to its end.
  document.addEventListener("loadedmetadata", (event) => {
    const media = event.target;
    if (media.duration !== Infinity || media.srcObject) return;
    media.addEventListener("durationchange", () => { media.currentTime = 0; }, { once: true });
    media.currentTime = Number.MAX_SAFE_INTEGER;
  }, true);

  // The timeline: a line runs along while something plays. A moving map that is out of sight is paused.
  const place = (query, at) => {
    const line = find(query), whole = find(".timeline");
    if (line && whole) line.style.left = `${(100 * at) / Number(whole.dataset.seconds)}%`;
  };
  document.addEventListener("timeupdate", (event) => {
    const media = event.target;
    if (media.closest("#moving") && !media.getClientRects().length) media.pause();
    if (media.closest("#moving, #video, .timeline")) place(".timeline .playing", media.currentTime);
  }, true);

  const shown = (query) => [...document.querySelectorAll(query)].find((e) => e.offsetParent);
  window.soundspot = {
    // Mark a moment, and what is heard there.
    mark(at) {
      const whole = find(".timeline");
      if (!whole) return;
      const seconds = Number(whole.dataset.seconds), heard = Number(whole.dataset.heard);
      const start = Math.min(Math.max(at - heard / 2, 0), seconds - heard);
      place(".timeline .moment", at);
      place(".timeline .heard", start);
      const wave = find(".timeline .wave");
      wave.setAttribute("aria-valuenow", at.toFixed(2));
      wave.setAttribute("aria-valuetext", `${at.toFixed(2)} seconds`);
    },
    // Play what is in sight from a moment on.
    play(at) {
      for (const media of document.querySelectorAll("video, audio")) media.pause();
      const media = shown("#moving video") ?? shown("#video video") ?? find(".timeline audio");
      if (!media) return;
      media.currentTime = at;
      media.play().catch(() => {});
    },
  };
}
