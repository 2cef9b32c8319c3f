"""The verbs that show where a sound comes from: localize, demo, serve, page."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soundspot.cli.options import (
    Device,
    FileOrDash,
    Flag,
    Moment,
    Out,
    complain,
    refuse,
    say,
)
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import check_list_of_files, is_folder_or_list
from soundspot.inference.outputs import TIMELINES
from soundspot.media import sound_of_picture
from soundspot.parallel.engines import EngineName

if TYPE_CHECKING:
    from soundspot.inference.localizer import Localizer


def localize(
    file: Path,
    /,
    *more: Path,
    audio: Path | None = None,
    at: Moment = "best",
    out: Out = None,
    model: str | None = None,
    device: Device = "auto",
    json: FileOrDash = None,
    sources: int = 1,
    fps_map: float | None = None,
    cycles: int | None = None,
    outline: bool | None = None,
    mask: Path | None = None,
    no_pictures: Flag = False,
    details: Flag = False,
    engine: EngineName | None = None,
    jobs: int | None = None,
) -> int:
    """Show where the sound comes from in a video, or in a photo with a sound file.

    The extension of the output decides what is made. A picture shows one moment, or with --sources
    one moment per sound. A video shows the moving heat map, with the sound. A timeline says what
    sounds from when to when, and where; captions in .vtt stand beside what sounds.

    Given a folder or a list of files, every file is localized; the results are a picture per file,
    JSON lines and maps.

    Args:
        file: A video with sound, or an image together with --audio; or a folder; or a list of
            files, one path per line (.txt) or in the first column (.csv).
        more: More videos, each of which becomes a picture; or the sound of an image.
        audio: Sound file to locate instead of the video's own sound.
        at: Time in the video: seconds, 0:12, the best of a few moments, or its middle, which is
            several times faster.
        out: Picture (.png, .jpg, .jpeg, .webp), video (.mp4, .mov, .mkv, .webm) or timeline (.srt,
            .vtt, .csv, .json) to write, or a folder. Default: NAME-soundspot.png in the current
            folder. A folder or list requires an output folder.
        model: Name of a model, .safetensors checkpoint or folder of a training run. Default:
            soundspot.
        json: Write box, score, labels and map to this JSON file: one line per map of a video, or
            one line per file if there are several; "-" is standard output.
        sources: Tell up to this many sounds apart, by time and by what is heard, and make a map of
            each.
        fps_map: Maps per second of a video. Default: 4.
        cycles: T of a model with a PCM. Default: the T it was trained with.
        outline: Outline the thing that sounds. Default: yes, except in a whole video, where it
            takes several times as long.
        mask: Write the outlined thing to this picture, white on black.
        no_pictures: For a folder or list: write no pictures, to save time.
        details: Also print the numbers behind the answer.
        engine: For a folder or list: run on this machine (local) or on a Ray cluster (ray).
            Default: local.
        jobs: For a folder or list: number of processes. Default: one per core, or one on a GPU.
    """
    if audio is None and (sound := sound_of_picture([file, *more])) is not None:
        picture = more[0] if sound == file else file
        file, audio, more = picture, Path(sound), ()
    folders = [path for path in (file, *more) if is_folder_or_list(path)]
    if folders and more:
        raise SoundspotError(f"{folders[0]} is a folder or list: pass it alone, or pass only files")
    if folders:
        given = {"--audio": audio, "--json": json, "--fps-map": fps_map, "--details": details}
        given |= {"--sources": sources != 1, "--cycles": cycles, "--mask": mask}
        refuse(given, f"applies to a single file, but {file} is a folder or list")
        if not file.is_dir():
            check_list_of_files(file)
        if out is None or (out.suffix.lower() in TIMELINES and not out.is_dir()):
            raise SoundspotError(f"{file} is a folder or list: name an output folder with -o")
        from soundspot.inference.batch import BatchJob, run_batch
        from soundspot.parallel.engines import Engine

        where = Engine(engine or "local", jobs)
        shown = not no_pictures, outline is not False
        return 0 if run_batch(BatchJob(file, out, model, *shown, at, where, device), say) else 2
    given = {"--no-pictures": no_pictures, "--engine": engine, "--jobs": jobs}
    refuse(given, f"applies to a folder or list of files, but {file} is neither")
    if more:
        refuse({"--fps-map": fps_map, "--mask": mask}, "applies to a single file")
    from soundspot.inference.file_job import FileJob, run_file_jobs

    options: dict[str, Any] = {"json": json, "at": at, "sources": sources, "fps_map": fps_map}
    options |= {"details": details, "outline": outline, "mask": mask}
    places = _places((file, *more), out)
    made = [FileJob(name, audio, place, **options) for name, place in places.items()]
    return 2 if run_file_jobs(made, partial(_load, model, device, cycles), say, complain) else 0


def _load(model: str | None, device: str, cycles: int | None) -> "Localizer":
    from soundspot.inference import models

    return replace(models.load(model, device), cycles=cycles)


def _places(files: Sequence[Path], out: Path | None) -> dict[Path, Path]:
    """What is made of each file: the output of a single one, or pictures in a folder."""
    if len(files) == 1 and out is not None and not out.is_dir():
        return {files[0]: out}
    if out is not None and out.suffix and not out.is_dir():
        raise SoundspotError(f"several files need a folder after -o, got {out}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    places = {file: (out or Path()) / f"{file.stem}-soundspot.png" for file in files}
    owners: dict[Path, Path] = {}
    for file, place in places.items():
        if (other := owners.setdefault(place, file)) != file:
            raise SoundspotError(f"{other} and {file} both become {place}: run them separately")
    return places


def demo(*, out: Out = None, device: Device = "auto") -> None:
    """Localize a dog's bark and a siren in a photo of a dog, and explain what to look at.

    Args:
        out: Folder for the pictures. Default: out.
    """
    from soundspot.inference.demo import run_demo

    run_demo(out or Path("out"), say, device)


def serve(*, host: str = "127.0.0.1", port: int = 7860) -> None:
    """Open the page for your own videos, photos, camera and microphone; nothing is uploaded.

    The page computes in the browser. This command only hands out its files.

    Args:
        host: Address to listen on; only this computer can reach the default.
        port: Port to listen on.
    """
    from soundspot.inference.static_page import open_server

    with open_server(host, port) as server:
        shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "") else host
        say(f"http://{shown}:{server.server_address[1]}/ - stop with Ctrl+C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")


def page(out: Path, /) -> None:
    """Write the page as a folder for any static host.

    Args:
        out: The folder; a page that is there already is replaced.
    """
    from soundspot.inference.static_page import write_page

    say(f"{out}: {write_page(out) / 1e6:.0f} MB; any web server can show this folder")
