"""How fast the page is in headless Chromium, as ratios to native onnxruntime in the same run.

    make page && python benchmarks/page_speed.py [-o results/page_speed.json] [--minutes 10]

With --minutes it also says how much memory live use takes, at its start and at its end.

The first ratio is of CPU times, so that other work on the machine matters little. The others are of
times by the clock, each the fastest of its runs, in turns: close other programs first. The figures
per second are those of this machine.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
from playwright.sync_api import sync_playwright

from soundspot.inference import static_page
from soundspot.training.run_folder import git_commit

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
DEVICES = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
SOURCES = Path(__file__).parents[1] / "page" / "src"
RUNS, ROUNDS = 8, 4
TIMED = """async (runs) => {
  const pixels = new Uint8ClampedArray(256 * 256 * 4).map((_, k) => (k * 7) % 256);
  const wave = Float32Array.from({ length: 48000 }, (_, k) => Math.sin(k / 9) / 3);
  let best = Infinity;
  for (let k = 0; k < runs; k++) {
    const start = performance.now();
    await soundspot.engine.localize(pixels, wave);
    best = Math.min(best, performance.now() - start);
  }
  return best / 1000;
}"""
PLAYS = "!document.querySelector('video').paused && document.body.dataset.verdict === 'visible'"


def native():
    """Runs a map on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = str(static_page.page_files()["model.onnx"])
    session = onnxruntime.InferenceSession(model, options)
    frame = (np.arange(256 * 256 * 3) * 7 % 256).astype(np.uint8).reshape(1, 256, 256, 3)
    wave = (np.sin(np.arange(48_000) / 9) / 3).astype(np.float32)[None]
    return lambda: session.run(None, {"frame": frame, "waveform": wave})


def browser_processes() -> dict[int, list[str]]:
    """The processes that this one has started, with their fields of /proc/PID/stat."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has just ended
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    found = {}
    for pid in fields.keys() - {os.getpid()}:
        above = pid
        while above in fields and above != os.getpid():
            above = int(fields[above][1])
        if above == os.getpid():
            found[pid] = fields[pid]
    return found


def browser_cpu() -> float:
    """CPU seconds of the browser."""
    ticks = sum(int(f[11]) + int(f[12]) for f in browser_processes().values())
    return ticks / os.sysconf("SC_CLK_TCK")


def browser_memory() -> float:
    """Memory of the browser in MB; what its processes share is counted once."""
    total = 0
    for pid in browser_processes():
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(rollup.partition("\nPss:")[2].split()[0])
    return total / 1000


def open_page(browser, address: str, threads: int):
    """A page whose example rests, so that nothing else computes."""
    tab = browser.new_page(reduced_motion="reduce")
    tab.set_default_timeout(120_000)
    tab.goto(f"{address}?threads={threads}")
    tab.wait_for_selector("body[data-known=all]")
    return tab


def first_answer(browser, address: str) -> float:
    """Seconds from the loaded page to the example that plays with its map; a new visitor."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(address)
    start = time.perf_counter()
    while not tab.evaluate(PLAYS):
        time.sleep(0.02)
    took = time.perf_counter() - start
    context.close()
    return took


def live_rate(browser, address: str) -> float:
    """Maps per second of camera and microphone."""
    tab = browser.new_page()
    tab.goto(address)
    tab.wait_for_selector("body[data-known=all]", timeout=120_000)
    tab.click("#camera")
    tab.wait_for_selector("body[data-mode=live]:not([data-verdict=''])", timeout=120_000)
    start, before = time.perf_counter(), tab.evaluate("soundspot.engine.asked")
    tab.wait_for_timeout(5000)
    return (tab.evaluate("soundspot.engine.asked") - before) / (time.perf_counter() - start)


def live_memory(browser, address: str, minutes: float) -> list[float]:
    """Memory of the browser in MB at each tenth of so many minutes of live use."""
    tab = browser.new_page()
    tab.goto(address)
    tab.click("#camera")
    tab.wait_for_selector("body[data-mode=live]:not([data-verdict=''])", timeout=120_000)
    used = []
    for _ in range(10):
        tab.wait_for_timeout(6000 * minutes)
        used.append(browser_memory())
    tab.close()
    return used


def measure(browser, address: str) -> dict[str, float]:
    """All figures."""
    run = native()
    run()
    cpu: dict[str, list[float]] = {"native": [], "page": []}
    tab = open_page(browser, address, 1)
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(RUNS):
            run()
        cpu["native"].append((time.process_time() - start) / RUNS)
        start = browser_cpu()
        tab.evaluate(TIMED, RUNS)
        cpu["page"].append((browser_cpu() - start) / RUNS)
    tabs = {1: tab, 2: open_page(browser, address, 2)}
    times = {1: float("inf"), 2: float("inf")}
    for _ in range(ROUNDS):
        for threads, each in tabs.items():
            times[threads] = min(times[threads], each.evaluate(TIMED, RUNS))
    for each in tabs.values():
        each.close()
    model = ("model.onnx", "ort/")
    own = [p for p in sorted(SOURCES.iterdir()) if p.suffix in (".js", ".css", ".html")]
    sizes = {n: p.stat().st_size for n, p in static_page.page_files().items()}
    return {
        "native, one thread (CPU ms)": 1000 * min(cpu["native"]),
        "one WASM thread, times native": min(cpu["page"]) / min(cpu["native"]),
        "two WASM threads, times faster than one": times[1] / times[2],
        "live (maps per second)": live_rate(browser, address),
        "first example plays after (s)": min(first_answer(browser, address) for _ in range(3)),
        "page without model and runtime (KB)": sum(
            size for name, size in sizes.items() if not name.startswith(model)
        )
        / 1000,
        "model (MB)": sizes["model.onnx"] / 1e6,
        "our lines": sum(len(path.read_text("utf-8").splitlines()) for path in own),
    }


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--minutes", type=float)
    wanted = parser.parse_args()
    server = static_page.open_server("127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*FLAGS, *DEVICES]
        )
        found = measure(browser, address)
        if wanted.minutes:
            used = live_memory(browser, address, wanted.minutes)
            found["live use, its first tenth (MB)"], *_, last = used
            found[f"live use, {wanted.minutes:g} minutes (MB)"] = last
        browser.close()
    server.shutdown()
    for name, value in found.items():
        print(f"{name:45} {value:10.2f}")
    if wanted.out is not None:
        made = {"command": " ".join(["python", *sys.argv]), "commit": git_commit()}
        wanted.out.write_text(json.dumps({**made, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
