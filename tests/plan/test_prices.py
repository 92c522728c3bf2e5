"""Prices by hand, in decimal numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.load import PlanError, load_plan
from ablation.plan.lock import lock_plan, verify_lock
from ablation.plan.prices import Bill, Held, Prices, TokenPrices, Tokens, bill_devices, bill_tokens, device_price, exact, money
from tests.plan.conftest import TEXT, write_plan

OWN = "prices:\n  currency: EUR\n  device_hour: {h200: 2.50, cpu: 0.04}\n  million_tokens: {prefill: 1.86, sample: 5.595}\n"


def prices(**given) -> Prices:
    return Prices.model_validate({"currency": "USD"} | given)


def test_a_plan_names_its_prices(tmp_path):
    found = load_plan(write_plan(tmp_path, TEXT + OWN)).plan.prices
    assert found is not None and found.currency == "EUR"
    assert found.device_hour == {"h200": 2.5, "cpu": 0.04}
    assert found.million_tokens == TokenPrices(prefill=1.86, sample=5.595, train=None)


def test_a_plan_without_prices_is_as_it_was_locked(tmp_path):
    """The field is younger than old locks: without it nothing is said, and such a lock still verifies."""
    path = write_plan(tmp_path)
    lock = lock_plan(path)
    assert lock.content["plan"]["prices"] is None and verify_lock(path).plan.prices is None


def test_tokens_by_hand():
    """2,000,000 x 1.86 / 10^6 = 3.72; 123,457 x 5.595 / 10^6 = 0.690741915; 10 x 5.595 / 10^6 = 0.00005595."""
    given = prices(million_tokens={"prefill": 1.86, "sample": 5.595, "train": 5.595})
    bill = bill_tokens(given, Tokens(2_000_000, 123_457, 10))
    assert [one.amount for one in bill.charges] == [Decimal("3.72"), Decimal("0.690741915"), Decimal("0.00005595")]
    assert bill.total == Decimal("4.410797865")
    assert bill.words == "4.41 USD" and bill.unpriced == ()
    assert bill.charges[0].formula == "2,000,000 tokens / 1,000,000 x 1.86 USD"
    assert bill.as_json()["charges"][1] | {"what": ""} == {
        "what": "",
        "quantity": 123_457,
        "unit": "tokens",
        "price": "5.595",
        "per": 1_000_000,
        "amount": "0.690741915",
        "shown": "0.69 USD",
        "formula": "123,457 tokens / 1,000,000 x 5.595 USD",
    }


def test_no_float_moves_a_sum():
    """Ten times 0.1 is 1, and 0.1 + 0.2 is 0.3: floats say 0.9999999999999999 and 0.30000000000000004."""
    assert sum([0.1] * 10) != 1.0
    given = prices(million_tokens={"prefill": 0.1, "sample": 0.2})
    assert bill_tokens(given, Tokens(1_000_000, 1_000_000)).total == Decimal("0.3")
    bill = Bill("USD")
    for _ in range(10):
        bill += bill_tokens(given, Tokens(1_000_000))
    assert bill.total == 1


@given(st.integers(0, 10**12), st.integers(0, 10**9))
def test_a_price_in_cents_by_whole_numbers(tokens, cents):
    """tokens x cents / 10^8, in whole numbers."""
    given = prices(million_tokens={"sample": cents / 100})
    total = bill_tokens(given, Tokens(sample=tokens)).total
    assert total is not None and total * 10**8 == tokens * cents


def test_what_has_no_price_is_named_and_not_counted():
    given = prices(million_tokens={"sample": 2})
    bill = bill_tokens(given, Tokens(5, 1_000_000, 7))
    assert bill.total == 2 and bill.unpriced == ("prefill", "train")
    assert bill.words == "2.00 USD, without prefill, train (no price)"
    assert bill.charges[0].formula == "5 tokens"
    assert bill_tokens(given, Tokens(5)).words == "not known: no price for prefill"
    assert bill_tokens(prices(device_hour={"any": 1}), Tokens(0, 3)).total is None
    assert bill_tokens(given, Tokens()).words == "0 USD"


def test_a_price_of_nothing_is_a_price():
    assert bill_tokens(prices(million_tokens={"sample": 0}), Tokens(0, 10**9)).words == "0 USD"


def test_device_hours_by_hand():
    """8 devices for 1,234.5 s are 9,876 s: 9,876 / 3600 x 2.5 = 6.858333...; an hour of the CPU is 0.04."""
    given = prices(device_hour={"h200": 2.5, "cpu": 0.04})
    bill = bill_devices(
        given, [Held("NVIDIA H200", Decimal("9876")), Held("Intel(R) Xeon(R) Processor, 1 thread", Decimal(3600), False)]
    )
    assert [one.amount for one in bill.charges] == [Decimal("6.858333333"), Decimal("0.04")]
    assert bill.total == Decimal("6.898333333") and bill.words == "6.90 USD"
    assert bill.charges[0].formula == "9,876 device seconds / 3,600 x 2.5 USD"


@pytest.mark.parametrize(
    ("device", "accelerator", "price"),
    [
        ("NVIDIA H200", True, "3"),
        ("NVIDIA A10", True, "1"),
        ("NVIDIA A100-SXM4-80GB", True, "2"),
        ("NVIDIA A100-SXM4-40GB", True, "1.5"),
        ("AMD Instinct MI300X", True, None),
        ("Intel(R) Xeon(R) Processor, 1 thread", False, "0.25"),
        ("NVIDIA cpu", True, None),
    ],
)
def test_a_device_is_found_by_whole_words_and_the_longest_name(device, accelerator, price):
    """`a10` is no part of `A100`, and `a100 sxm4 80gb` says more than `a100`."""
    given = prices(device_hour={"a10": 1, "a100": 1.5, "A100-SXM4-80GB": 2, "h200": 3, "cpu": 0.25})
    if device == "NVIDIA cpu":  # an accelerator is no CPU, whatever its name
        given = prices(device_hour={"h200": 3})
    found = device_price(given, device, accelerator)
    assert found == (None if price is None else Decimal(price))


def test_any_other_device():
    given = prices(device_hour={"any": 1, "h200": 3})
    assert device_price(given, "AMD Instinct MI300X") == 1 and device_price(given, "NVIDIA H200") == 3
    assert device_price(given, "some processor", False) == 1


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("{currency: EUR}", "prices", "there is no price in it"),
        ("{currency: EUR, million_tokens: {}}", "prices.million_tokens", "there is no price in it"),
        ("{currency: euro, device_hour: {any: 1}}", "prices.currency", "found"),
        ("{currency: EUR, device_hour: {any: -1}}", "prices.device_hour.any", "-1"),
        ("{currency: EUR, device_hour: {h200: 1, H200: 2}}", "prices.device_hour.H200", "the same devices as `h200`"),
        ("{currency: EUR, device_hour: {'--': 1}}", "prices.device_hour.--", "no letter or digit"),
        ("{currency: EUR, million_tokens: {sample: 0.12345678901234567}}", "prices.million_tokens.sample", "at most 15 digits"),
        ("{currency: EUR, million_tokens: {sampling: 1}}", "prices.million_tokens.sampling", "did you mean `sample`?"),
        ("{device_hour: {any: 1}}", "prices.currency", "missing"),
    ],
)
def test_bad_prices_are_named_with_their_line(tmp_path, text, field, words):
    with pytest.raises(PlanError) as error:
        load_plan(write_plan(tmp_path, TEXT + f"prices: {text}\n"))
    line = TEXT.count("\n") + 1
    assert f"small.yaml:{line}:" in error.value.message and field in error.value.message and words in error.value.message
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0 USD"),
        ("1190.434", "1,190.43 USD"),
        ("0.125", "0.12 USD"),
        ("0.375", "0.38 USD"),
        ("0.0037449", "0.0037 USD"),
        ("0.00005595", "0.000056 USD"),
        ("12", "12.00 USD"),
    ],
)
def test_money_in_words(amount, text):
    """Cents, half to even; below one unit two digits."""
    assert money(Decimal(amount), "USD") == text


def test_a_number_is_what_was_written():
    assert exact(1.86) == Decimal("1.86") and exact(1e-7) == Decimal("0.0000001") and exact(3.0) == 3
