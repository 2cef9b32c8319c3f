"""A method: the frame, attended by the sound, has to predict the sound's frozen embedding."""

from dataclasses import dataclass

from torch import nn

from soundspot.model.attention import attend, similarity
from soundspot.model.heads import AudioTransform
from soundspot.model.methods.method import Batch, Method, MethodConfig, MethodOutput


@dataclass(frozen=True)
class RegressConfig(MethodConfig):
    """The switches, which a recipe sets as model.hidden=64; c_v and c_a come from the encoders."""

    hidden: int = 32


class Regress(Method):
    """What is heard is regressed from where it is attended to."""

    config_class = RegressConfig
    training_only = ("predict.",)  # `maps` does without it, and so do exported models
    per_pair = True  # the loss is a mean over pairs: train.accumulate is exact
    line = ("train.lr=1e-3",)  # its line in `soundspot reproduce main`

    def __init__(self, config: RegressConfig) -> None:
        super().__init__(config)
        self.g = AudioTransform(config.c_a, config.c_v)
        self.predict = nn.Sequential(
            nn.Linear(config.c_v, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.c_a)
        )

    def forward(self, batch: Batch) -> MethodOutput:
        """The loss of a batch: here the mean of both views'."""
        target = batch.f_a.mean(dim=1)
        losses = [
            (self.predict(attend(self.g(batch.f_a), f_v).f_av) - target).square().mean()
            for f_v in batch.views
        ]
        return MethodOutput(sum(losses) / 2, {"first": losses[0].detach()})

    def maps(self, f_v, f_a, cycles=None):
        """The map of every pair (b h w); `cycles` is for methods with a PCM."""
        return similarity(self.g(f_a), f_v)
