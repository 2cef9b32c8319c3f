"""One line per method: its name and its class, which names its config.

What differs from each method's paper and code is in docs/differences.md.

A new method is one file with a Method and its config, and one line here. An installed
package can add one through an entry point of the group "soundspot.methods" instead.
"""

import dataclasses
from typing import Any, NamedTuple

from soundspot.common.config import NamedTable
from soundspot.model.methods.method import Method


class MethodSpec(NamedTuple):
    """A method's dataclass of switches, and the module that takes it."""

    config: type[Any]
    module: type[Method]


def read_method(_name: str, found: object) -> MethodSpec:
    """Check that a line leads to a method."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"{found!r} is not a subclass of Method")
    config = getattr(found, "config_class", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise TypeError(f"{found.__name__}.config_class must be a dataclass, not {config!r}")
    return MethodSpec(config, found)


METHODS = NamedTable(
    "method",
    {
        "sspl": "soundspot.model.methods.sspl_plus:SSPLPlus",
        "attention": "soundspot.model.methods.senocak:Attention",
        "hardway": "soundspot.model.methods.hardway:HardWay",
        "contrastive": "soundspot.model.methods.contrastive:Contrastive",
        "student": "soundspot.model.methods.student:Student",
        "dmc": "soundspot.model.methods.dmc:DMC",
        "cavl": "soundspot.model.methods.cavl:CAVL",
        "mssl": "soundspot.model.methods.mssl:MSSL",
        "avobject": "soundspot.model.methods.avobject:AVObject",
        "dsol": "soundspot.model.methods.dsol:DSOL",
        "icl": "soundspot.model.methods.icl:ICL",
        "ezvsl": "soundspot.model.methods.ezvsl:EZVSL",
        "slavc": "soundspot.model.methods.slavc:SLAVC",
        "fnac": "soundspot.model.methods.fnac:FNAC",
        "ssltie": "soundspot.model.methods.ssltie:SSLTIE",
        "sacl": "soundspot.model.methods.sacl:SACL",
        "marginnce": "soundspot.model.methods.marginnce:MarginNCE",
        "sslalign": "soundspot.model.methods.sslalign:SSLAlign",
        "sslsan": "soundspot.model.methods.sslsan:SSLSaN",
        "names": "soundspot.model.methods.names:Names",
    },
    read_method,
)
