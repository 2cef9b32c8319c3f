"""The verbs that show where a sound comes from: localize, demo, serve."""

from pathlib import Path
from typing import Annotated

from soundspot.cli.options import REPEATABLE, EngineName, FileOrDash, Flag, Out, refuse, say
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import is_folder_or_list


def localize(
    file: Path,
    /,
    *,
    audio: Path | None = None,
    at: float | None = None,
    out: Out = None,
    model: str | None = None,
    json: FileOrDash = None,
    sources: int = 1,
    fps_map: float | None = None,
    overlays: Flag = False,
    engine: EngineName | None = None,
    jobs: int | None = None,
) -> None:
    """Show where the sound comes from in a video, or in a photo with a sound file.

    The extension of the output decides what is made. A picture shows one moment, or with
    --sources one moment per sound. A video shows the heat map as it moves, with the sound.

    Given a folder or a list of files, every file is localised at its middle; the results are
    lines of JSON and maps.

    Args:
        file: A video with sound, or an image together with --audio; or a folder; or a list of
            files, one path per line (.txt) or in the first column (.csv).
        audio: Sound file to locate instead of the video's own sound.
        at: Time in the video, in seconds. Default: the middle.
        out: Picture (.png, .jpg, .webp) or video (.mp4, .mov, .mkv, .webm) to write. Default:
            NAME-soundspot.png in the current folder. For a folder or list, the folder to write is
            required.
        model: Name of a model, .safetensors checkpoint or folder of a training run. Default:
            soundspot-v1.
        json: Write box, score, labels and map to this JSON file, for a video one line per map;
            "-" is standard output.
        sources: Separate up to this many sounds by time, and make a map of each.
        fps_map: Maps per second of a video. Default: 4.
        overlays: For a folder or list: also draw every map over its frame.
        engine: For a folder or list: run on this machine (local) or on a Ray cluster (ray).
            Default: local.
        jobs: For a folder or list: number of processes. Default: one per core.
    """
    if is_folder_or_list(file):
        from soundspot.inference.batch import BatchJob, run_batch
        from soundspot.parallel.engines import Engine

        given = {"--audio": audio, "--at": at, "--json": json, "--fps-map": fps_map}
        given["--sources"] = sources != 1
        refuse(given, f"applies to a single file, but {file} is a folder or list")
        if out is None:
            raise SoundspotError(f"{file} is a folder or list: name an output folder with -o")
        run_batch(BatchJob(file, out, model, overlays, Engine(engine or "local", jobs)), say)
        return
    from soundspot.inference.file_job import FileJob, run_file_job

    given = {"--overlays": overlays, "--engine": engine, "--jobs": jobs}
    refuse(given, f"applies to a folder or list of files, but {file} is neither")
    place = out or Path(f"{file.stem}-soundspot.png")
    run_file_job(FileJob(file, audio, place, model, json, at, sources, fps_map), say)


def demo(*, out: Out = None) -> None:
    """Localise a dog's bark and a siren in a photo of a dog, and explain what to look at.

    Args:
        out: Folder for the pictures. Default: out.
    """
    from soundspot.inference.demo import run_demo

    run_demo(out or Path("out"), say)


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    model: Annotated[list[str] | None, REPEATABLE] = None,
    max_seconds: float = 120.0,
    max_mb: int = 200,
) -> None:
    """Serve a web page: drop a video, see what is sounding, compare two sounds or models.

    Args:
        host: Address to listen on; only this computer can reach the default.
        port: Port to listen on.
        model: Name of a model, checkpoint or run folder; repeat for several. Default: all
            trained models that come with soundspot.
        max_seconds: Longest video or sound to accept.
        max_mb: Largest file to accept, in MB.
    """
    try:
        from soundspot.web.server import serve_until_interrupted
    except ImportError as error:
        raise SoundspotError(
            f"the web page needs gradio ({error}): pip install 'soundspot[demo]'"
        ) from error

    limits = {"seconds": max_seconds, "upload_mb": max_mb}
    serve_until_interrupted(say, host, port, model or (), limits)
