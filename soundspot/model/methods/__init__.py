"""One line per method: its name, its config and its module.

A new method is one file with a Method and its config, and one line here.
"""

from typing import Any, NamedTuple

from soundspot.model.methods.contrastive import Contrastive, ContrastiveConfig
from soundspot.model.methods.hardway import HardWay, HardWayConfig
from soundspot.model.methods.method import Method
from soundspot.model.methods.names import Names, NamesConfig
from soundspot.model.methods.senocak import Attention, AttentionConfig
from soundspot.model.methods.sspl import SSPL, SSPLConfig


class MethodSpec(NamedTuple):
    """A method's dataclass of switches, and the module that takes it."""

    config: type[Any]
    module: type[Method]


METHODS: dict[str, MethodSpec] = {
    "sspl": MethodSpec(SSPLConfig, SSPL),
    "attention": MethodSpec(AttentionConfig, Attention),
    "hardway": MethodSpec(HardWayConfig, HardWay),
    "contrastive": MethodSpec(ContrastiveConfig, Contrastive),
    "names": MethodSpec(NamesConfig, Names),
}
