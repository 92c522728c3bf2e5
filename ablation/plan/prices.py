"""Prices that a plan may name, and what work costs by them: exact decimal arithmetic, and nothing that the plan does not say.

A run on own or rented devices is paid by device hour. A training service bills tokens: those of prompts and of texts that are
only scored (prefill), sampled ones, and those in a forward and backward pass (train). The numbers are the user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, model_validator

from ablation.plan.section import NonNegativeFloat, Section, Text, refuse_any

MILLION = Decimal(1_000_000)
HOUR = Decimal(3600)
ANY = "any"
"""Key of `device_hour` for every device that no other key names."""
CPU = "cpu"
"""Key of `device_hour` for a machine without an accelerator, all of its processors together."""
SERVICES = ("tinker",)
"""Backends that bill tokens, not device hours."""
DIGITS = 15
"""Significant digits of a number in a plan that come back as they were written."""
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
TokenKind = Literal["prefill", "sample", "train"]
KINDS: tuple[TokenKind, ...] = ("prefill", "sample", "train")


class TokenPrices(Section):
    """What a million tokens cost, as training services bill them. What is left out has no price, which is not a price of 0."""

    prefill: NonNegativeFloat | None = None
    """Tokens of prompts, and of texts that are only scored."""
    sample: NonNegativeFloat | None = None
    """Sampled tokens."""
    train: NonNegativeFloat | None = None
    """Tokens in a forward and backward pass, prompts included."""

    @model_validator(mode="after")
    def _any(self) -> TokenPrices:
        if all(getattr(self, kind) is None for kind in KINDS):
            refuse_any([((), f"there is no price in it; known: {', '.join(KINDS)}")])
        return self


class Prices(Section):
    """What work costs, for `plan show` and the report. Your own numbers: the program has none."""

    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
    """Three letters of ISO 4217. All prices are in it."""
    device_hour: dict[Text, NonNegativeFloat] | None = None
    """Device -> price of one for an hour. A name stands as a word in what the device calls itself (`h200` for `NVIDIA H200`);
    `cpu` is a machine without an accelerator, `any` every other device."""
    million_tokens: TokenPrices | None = None
    """Of a training service, which bills tokens."""

    @model_validator(mode="after")
    def _possible(self) -> Prices:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if not self.device_hour and self.million_tokens is None:
            problems.append(((), "there is no price in it; known: device_hour, million_tokens"))
        seen: dict[str, str] = {}
        for name, price in (self.device_hour or {}).items():
            problems += _too_long(("device_hour", name), price)
            if not words_of(name):
                problems.append((("device_hour", name), f"`{name}` has no letter or digit that a device's name could have"))
            other = seen.setdefault(" ".join(words_of(name)), name)
            if other != name:
                problems.append((("device_hour", name), f"names the same devices as `{other}`"))
        for kind in KINDS:
            price = None if self.million_tokens is None else getattr(self.million_tokens, kind)
            problems += _too_long(("million_tokens", kind), price)
        refuse_any(problems)
        return self


def _too_long(at: tuple[str, ...], price: float | None) -> list[tuple[tuple[str | int, ...], str]]:
    if price is None or len(exact(price).normalize(_EXACT).as_tuple().digits) <= DIGITS:
        return []
    return [(at, f"found {price!r}; a price has at most {DIGITS} digits, so that it is reckoned with as it was written")]


@dataclass(frozen=True)
class Tokens:
    """Tokens as a training service counts them."""

    prefill: int = 0
    """In forward passes alone: prompts before they are continued, and texts that are scored."""
    sample: int = 0
    train: int = 0
    """In forward and backward passes, prompts included."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.prefill + other.prefill, self.sample + other.sample, self.train + other.train)

    def __bool__(self) -> bool:
        return any((self.prefill, self.sample, self.train))

    def as_json(self) -> dict[str, int]:
        return {kind: getattr(self, kind) for kind in KINDS}


@dataclass(frozen=True)
class Charge:
    """One product of a quantity and a price."""

    what: str
    """`sample`, or the device's own name."""
    quantity: Decimal
    unit: str
    """`tokens` or `device seconds`."""
    price: Decimal | None
    """For a million tokens or a device hour; None: the plan has no price for it."""
    currency: str

    @property
    def per(self) -> Decimal:
        return MILLION if self.unit == "tokens" else HOUR

    @property
    def amount(self) -> Decimal | None:
        """Exact for tokens. An hour has 3,600 seconds, by which not all divide: rounded to a billionth, half to even."""
        if self.price is None:
            return None
        with localcontext(_EXACT):
            found = self.quantity * self.price / self.per
            return found if self.unit == "tokens" else found.quantize(Decimal("1e-9"))

    @property
    def formula(self) -> str:
        """`2,000,000 tokens / 1,000,000 x 1.86 USD`, or without a price the quantity alone."""
        held = f"{plain(self.quantity)} {self.unit}"
        return held if self.price is None else f"{held} / {plain(self.per)} x {plain(self.price)} {self.currency}"

    def as_json(self) -> dict[str, Any]:
        """Amounts are text: a decimal number, not the float nearest to it."""
        return {
            "what": self.what,
            "quantity": int(self.quantity) if self.unit == "tokens" else float(self.quantity),
            "unit": self.unit,
            "price": None if self.price is None else format(self.price, "f"),
            "per": int(self.per),
            "amount": None if self.amount is None else format(self.amount, "f"),
            "shown": "no price" if self.amount is None else money(self.amount, self.currency),
            "formula": self.formula,
        }


@dataclass(frozen=True)
class Bill:
    """What something costs: the sum over charges that have a price, and what has none."""

    currency: str
    charges: tuple[Charge, ...] = ()

    @property
    def total(self) -> Decimal | None:
        """Of what has a price; None if there is work and none of it has one."""
        amounts = [one.amount for one in self.charges if one.amount is not None]
        if self.charges and not amounts:
            return None
        with localcontext(_EXACT):
            return sum(amounts, Decimal(0))

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What there was of and the plan has no price for."""
        return tuple(one.what for one in self.charges if one.price is None)

    @property
    def words(self) -> str:
        """`12.30 USD`, with what it leaves out."""
        if self.total is None:
            return f"not known: no price for {', '.join(self.unpriced)}"
        left = f", without {', '.join(self.unpriced)} (no price)" if self.unpriced else ""
        return f"{money(self.total, self.currency)}{left}"

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.currency, self.charges + other.charges)

    def as_json(self) -> dict[str, Any]:
        return {
            "currency": self.currency,
            "charges": [one.as_json() for one in self.charges],
            "total": None if self.total is None else format(self.total, "f"),
            "shown": self.words,
            "unpriced": list(self.unpriced),
        }


def exact(number: float) -> Decimal:
    """The number as it was written: a float's shortest text is what a plan's file had, up to 15 digits."""
    return Decimal(repr(number))


def bill_tokens(prices: Prices, tokens: Tokens) -> Bill:
    """What a training service bills for `tokens`. Kinds of which there were none are left out."""
    given = prices.million_tokens
    charges = []
    for kind in KINDS:
        count, price = getattr(tokens, kind), None if given is None else getattr(given, kind)
        if count:
            charges.append(Charge(kind, Decimal(count), "tokens", None if price is None else exact(price), prices.currency))
    return Bill(prices.currency, tuple(charges))


@dataclass(frozen=True)
class Held:
    """Devices of one kind, and for how long a run had them."""

    device: str
    """As it calls itself."""
    seconds: Decimal
    """Those of several devices added up."""
    accelerator: bool = True
    """False: the machine itself, all of its processors together."""


def bill_devices(prices: Prices, held: Iterable[Held]) -> Bill:
    """What devices cost by the hour."""
    return Bill(
        prices.currency,
        tuple(
            Charge(one.device, one.seconds, "device seconds", device_price(prices, one.device, one.accelerator), prices.currency)
            for one in held
        ),
    )


def device_price(prices: Prices, device: str, accelerator: bool = True) -> Decimal | None:
    """Price of an hour of `device`: of the longest name whose words stand in the device's own name, else of `any`."""
    given, own = prices.device_hour or {}, words_of(device) if accelerator else (*words_of(device), CPU)
    fitting = [name for name in given if name.lower() != ANY and _stands_in(words_of(name), own)]
    chosen = max(fitting, key=lambda name: len(words_of(name)), default=None)
    if chosen is None:
        chosen = next((name for name in given if name.lower() == ANY), None)
    return None if chosen is None else exact(given[chosen])


def words_of(name: str) -> tuple[str, ...]:
    """Letters and digits of a name, word by word, without case."""
    return tuple(re.findall(r"[a-z0-9]+", name.lower()))


def _stands_in(words: Sequence[str], own: Sequence[str]) -> bool:
    return any(tuple(own[at : at + len(words)]) == tuple(words) for at in range(len(own) - len(words) + 1))


def money(amount: Decimal, currency: str) -> str:
    """`1,190.43 USD`; below one unit as many decimals as two digits need: `0.0037 USD`."""
    if amount == 0:
        return f"0 {currency}"
    places = max(2, 1 - amount.adjusted())
    with localcontext(_EXACT):
        return f"{amount.quantize(Decimal(1).scaleb(-places)):,f} {currency}"


def plain(number: Decimal) -> str:
    """All digits, none more, thousands apart."""
    found = number.normalize(_EXACT)
    return f"{found:,f}"
