"""Several sounds at once: a mixture is split by what is heard, and each sound gets its own map.

Candidates are the classes of the learned model (see `model.sound_classes`) and, by name, all other
sounds that are heard. Sound and picture choose together: a class counts more if the picture answers
to its typical sound more than pictures usually do. What is chosen is answered like any other sound,
with the typical sound of its class; one that only has a name is played as white noise that would be
given this name.

Axes: b samples, p patches, a audio channels, c visual channels, k classes, s sounds with a name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from soundspot.common.progress import progress
from soundspot.inference.inputs import as_waveform
from soundspot.inference.localizer import CHUNK, Localizer, Part, Pictures, Scenes
from soundspot.inference.moments import Event, Slices, films_around, listen
from soundspot.inference.result import Localization
from soundspot.media.clips import read_frames, read_sounds
from soundspot.media.decoding import AnyPicture, AnyWaveform
from soundspot.media.films import Film
from soundspot.media.opening import Media, opened
from soundspot.model.evidence import NOISE_NAME, how_sure
from soundspot.model.methods.names import Names
from soundspot.model.sound_classes import logits, read_sound_classes, weigh

# Best score of a learned sound below which none of the classes is heard: all mixtures of two of
# them have more, as benchmarks/fit_sound_classes.py says.
KNOWN = 0.04
AUDIBLE = 0.1  # score from which a name is a candidate
UNHEARD = -6.0  # logit of all other names of a sound that is made up


@dataclass(frozen=True, eq=False)
class Candidate:
    """A sound that a mixture may hold: its name, what speaks for it, and its features alone."""

    name: str
    heard: float
    score: float
    f_a: Float[Tensor, "1 p a"]


@dataclass(frozen=True, eq=False)
class Again:
    """One scene of a batch, several times; it is encoded once."""

    scenes: Scenes
    row: int = 0
    times: int = 1
    seen: dict[int, Float[Tensor, "1 c h w"]] = field(default_factory=dict)

    def features(self, part: Part) -> Float[Tensor, "b c h w"]:
        """The visual features that a part of the model sees."""
        if id(part) not in self.seen:
            self.seen[id(part)] = self.scenes.features(part)[[self.row]]
        return self.seen[id(part)].expand(self.times, -1, -1, -1)

    def picture(self, row: int) -> AnyPicture:
        """The pixels of the scene."""
        return self.scenes.picture(self.row)

    def film(self, row: int) -> Film | None:
        """The small pictures around it."""
        return self.scenes.film(self.row)

    def sound(self, row: int) -> AnyWaveform | None:
        """What is heard with it."""
        return self.scenes.sound(self.row)


@dataclass(frozen=True, eq=False)
class Heard:
    """A sound event of a file: its loudest moment, seen and heard."""

    event: Event
    at: float | None
    waveform: AnyWaveform
    scenes: Pictures
    f_a: Float[Tensor, "1 p a"]

    @cached_property
    def scene(self) -> Again:
        """What is seen."""
        return Again(self.scenes)

    def sounds(self, localizer: Localizer) -> list[Candidate]:
        """The sounds that are surely in it."""
        return sure(candidates(localizer, self.scene, self.f_a))

    def answers(
        self, localizer: Localizer, chosen: Sequence[Candidate], alone: bool
    ) -> list[Localization]:
        """The answer for each of its sounds alone, or for all of it."""
        answers = (
            answer_alone(localizer, self.scene, chosen)
            if alone
            else localizer.answer(self.scene, self.f_a)
        )
        event = self.event
        return [
            replace(
                answer,
                frame=self.scenes.frames[0],
                waveform=self.waveform,
                at=self.at,
                span=(event.start, event.end),
                heard=(event.middle - event.heard / 2, event.middle + event.heard / 2),
            )
            for answer in answers
        ]


def hear_events(
    localizer: Localizer,
    path: Media,
    audio: Media | None,
    find: Callable[[Slices], list[Event]],
) -> Iterator[Heard]:
    """The events that `find` finds in the sound of a file, seen and heard a few at a time."""
    with opened(path) as picture, opened(picture if audio is None else audio) as sound:
        picture.info.require_picture()
        sound.info.require_sound()
        seconds = min(filter(None, (file.info.duration for file in (picture, sound))))
        slices = listen(sound, seconds, lambda s: localizer.name_scores(localizer.hear(list(s))))
        events = find(slices)
        for start in progress(range(0, len(events), CHUNK), "localizing"):
            some = events[start : start + CHUNK]
            waves = read_sounds(sound.info, [(event.middle, event.heard) for event in some])
            times = [event.at for event in some]
            frames, films = read_frames(picture, times), films_around(localizer, picture, times)
            moving = picture.info.kind == "video"
            for event, wave, frame, film in zip(some, waves, frames, films, strict=True):
                heard = as_waveform(wave)  # as `localize_batch` does: a short one is repeated
                scenes, at = Pictures([frame], [film], [heard]), event.at if moving else None
                yield Heard(event, at, wave, scenes, localizer.hear([heard]))


def split(
    localizer: Localizer, scene: Again, f_a: Float[Tensor, "1 p a"], count: int
) -> list[Localization]:
    """The answers for at most `count` of the sounds in a mixture, the surest first.

    A sound that is not a mixture has one answer, and so has every sound of a model without names.
    """
    found = candidates(localizer, scene, f_a)
    chosen = sure(found)[:count]
    if len(chosen) > 1:
        return answer_alone(localizer, scene, chosen)
    (answer,) = localizer.answer(scene, f_a)
    return [replace(answer, labels=[(one.name, one.heard) for one in found[:1]] or answer.labels)]


def sure(found: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that are sure enough to be one of several sounds."""
    return [one for one in found if one.score >= read_sound_classes().least]


def answer_alone(
    localizer: Localizer, scene: Again, chosen: Sequence[Candidate]
) -> list[Localization]:
    """The answer for each of several sounds, as if nothing else sounded."""
    alone = torch.cat([candidate.f_a for candidate in chosen])
    answers = localizer.answer(replace(scene, times=len(chosen)), alone)
    return [
        replace(answer, labels=[(candidate.name, candidate.heard)])
        for answer, candidate in zip(answers, chosen, strict=True)
    ]


def share_out(found: Sequence[Sequence[Candidate]], count: int) -> list[list[Candidate]]:
    """Which sounds of each event count: one of each event, then the surest of all others.

    No name counts twice. An event that holds nothing but what others have is left out: its list
    is empty, as is that of an event of which nothing is sure, which is heard as a whole.
    """
    chosen: list[list[Candidate]] = [[] for _ in found]
    taken: set[str] = set()
    firsts = [(k, one) for k, some in enumerate(found) for one in some[:1]]
    rest = [(k, one) for k, some in enumerate(found) for one in some[1:]]
    for k, one in (*firsts, *sorted(rest, key=lambda pair: -pair[1].score)):
        if one.name not in taken and len(taken) < count:
            taken.add(one.name)
            chosen[k].append(one)
    return chosen


@torch.inference_mode()
def candidates(localizer: Localizer, scene: Again, f_a: Float[Tensor, "1 p a"]) -> list[Candidate]:
    """What a sound may hold, best first."""
    if localizer.table is None:
        return []
    scores, noise = (
        torch.from_numpy(part) for part in (localizer.name_scores(f_a), localizer.noise_scores)
    )
    named = _named(localizer, f_a)
    if how_sure(scores, noise, localizer.table)[0, 0] < KNOWN:
        return sorted(named, key=lambda candidate: -candidate.score)
    classes = read_sound_classes()
    typical = classes.typical.to(f_a)[:, None]
    maps = localizer.learned.method.maps(
        replace(scene, times=len(typical)).features(localizer.learned), typical
    )
    peaks = maps.float().amax(dim=(1, 2)).cpu() / (localizer.threshold or 1.0)
    heard = logits(f_a.cpu(), classes.weight, classes.bias)
    weighed = weigh(heard, peaks[None], classes.usual, classes.picture)[0]
    found = [
        Candidate(name.capitalize(), float(heard[0, k].sigmoid()), float(weighed[k]), typical[[k]])
        for k, name in enumerate(classes.names)
    ]
    return sorted([*found, *named], key=lambda candidate: -candidate.score)


def _named(localizer: Localizer, f_a: Float[Tensor, "1 p a"]) -> list[Candidate]:
    """Those by name alone: sounds that nothing learned, none like a better one."""
    assert localizer.named is not None and localizer.table is not None
    method = localizer.named.method
    assert isinstance(method, Names)
    scores, noise = localizer.name_scores(f_a)[0], localizer.noise_scores
    plain = localizer.noise.mean(dim=1, keepdim=True)
    found: list[Candidate] = []
    free = [k for k in localizer.table.named if scores[k] >= AUDIBLE and noise[k] < NOISE_NAME]
    while free:
        best = max(free, key=lambda k: float(scores[k]))
        score = torch.tensor(float(scores[best]))
        wanted = torch.full((len(scores),), UNHEARD)
        wanted[best] = score.logit()
        given = method.sound_weight @ plain[0, 0] + method.sound_bias
        sound = plain + torch.linalg.pinv(method.sound_weight) @ (wanted.to(given) - given)
        name = localizer.class_names[best]
        found.append(Candidate(name, float(score), float(score.logit()), sound))
        alike = method.heard_as[method.heard_as[:, best] > 0].sum(dim=0)
        free = [k for k in free if k != best and not alike[k]]
    return found
