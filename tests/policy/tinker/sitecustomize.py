"""For the environment of SkyRL's server alone: pydantic takes the standard library's TypedDict from Python 3.12 on."""

import sys

if sys.version_info < (3, 12):
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict
