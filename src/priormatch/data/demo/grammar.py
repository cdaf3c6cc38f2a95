"""Sentences about appointments: a small world a language model can learn by heart.

Every sentence is set in one place (a dentist's, a garage, ...), which has its own people, callers, days, hours and
prices; a date is always the first of its weekday in a month of one year; titles go with surnames, first names
with second ones. The choices a sentence is made of are phrases of several words that belong together, so the rest of
the phrase and of the sentence mostly tells which of two words that sound alike was said: thirteen or thirty,
tuesday or thursday, kent or trent.

A template is a sentence with {slots}. A slot is filled with one of its options, drawn evenly. `COMMON` holds the
slots that mean the same everywhere, `PLACES` those that depend on the place.
"""

import datetime
import random
import re
from collections.abc import Mapping, Sequence

from priormatch.errors import UserError

DRAWS_PER_SENTENCE = 20
"""How many draws a sentence may cost on average before the grammar counts as exhausted."""

Slots = Mapping[str, Sequence[str]]

YEAR = 2026
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")

COMMON: Slots = {
    "want": ["would like to", "need to"],
    "wants": ["would like to", "needs to"],
    "hello": ["hello", "good morning"],
    "sorry": ["i'm sorry but", "i'm afraid"],
}

TEMPLATES: Sequence[str] = (
    "can i see {who} on {date}",
    "can i have {service} with {who} on {date}",
    "can i see the {role} at {time} on {date}",
    "can {caller} come on {date} about {need}",
    "i {want} see {who} on {date}",
    "i {want} see {who} about {need}",
    "i {want} move {service} to {date}",
    "i can't come about {need} on {date}",
    "is {who} free at {time} on {date}",
    "is the {role} at {place} open on {date}",
    "{hello} this is {caller} about {need}",
    "{hello} this is {caller} can i see {who} on {date}",
    "{hello} i {want} come about {need} on {date}",
    "{caller} {wants} see {who} on {date}",
    "{caller} {wants} see the {role} about {need}",
    "{caller} {wants} move {service} to {date}",
    "{caller} called on {date} about {need}",
    "{caller} paid {price} for {service} on {date}",
    "{caller} still owes {who} {price} for {service}",
    "{caller} is coming at {time} on {date}",
    "{sorry} {who} can't see {caller} on {date}",
    "{sorry} {service} costs {price} at {place}",
    "{service} takes {length} and costs {price}",
    "{who} will see {caller} on {date}",
    "{who} will see {caller} about {need} at {time}",
    "please come to {place} at {time} on {date}",
    "please tell {caller} to see {who} on {date}",
    "please ask {who} about {need}",
    "how much does {who} charge for {service}",
)

PLACES: Sequence[Slots] = (
    {
        "role": ["dentist"],
        "who": ["doctor kent", "mister payne"],
        "caller": ["jan baker", "ken porter"],
        "place": ["thirteen mill street"],
        "weekday": ["tuesday", "friday"],
        "time": ["nine o'clock", "quarter past nine", "half past nine", "ten in the morning"],
        "price": ["sixty pounds"],
        "length": ["half an hour"],
        "service": ["a check up", "a new filling"],
        "need": ["a broken tooth", "a sore gum", "my wisdom teeth", "some pain"],
    },
    {
        "role": ["optician"],
        "who": ["missus trent", "doctor dane"],
        "caller": ["dan barker", "jen potter"],
        "place": ["thirty hill street"],
        "weekday": ["thursday", "monday"],
        "time": ["one o'clock", "quarter past one", "half past one", "two in the afternoon"],
        "price": ["sixteen pounds"],
        "length": ["a quarter of an hour"],
        "service": ["a sight test", "new glasses"],
        "need": ["my weak eyes", "a red eye", "some reading glasses", "a lost lens"],
    },
    {
        "role": ["surgery"],
        "who": ["doctor brent", "sister lane"],
        "caller": ["ann parker", "kim archer"],
        "place": ["fourteen park road"],
        "weekday": ["wednesday", "friday"],
        "time": ["eight o'clock", "quarter to eight", "half past eight", "nine in the morning"],
        "price": ["forty pounds"],
        "length": ["ten minutes"],
        "service": ["a flu jab", "some blood tests"],
        "need": ["a bad cough", "my sore throat", "high fever", "an old scar"],
    },
    {
        "role": ["vet"],
        "who": ["mister reed", "doctor peck"],
        "caller": ["tim carter", "jim harper"],
        "place": ["five birch lane"],
        "weekday": ["tuesday", "saturday"],
        "time": ["ten o'clock", "quarter to ten", "half past ten", "eleven in the morning"],
        "price": ["fifty pounds"],
        "length": ["twenty minutes"],
        "service": ["a rabies jab", "the weight check"],
        "need": ["our lame dog", "a sick cat", "my old hare", "the fat goat"],
    },
    {
        "role": ["barber"],
        "who": ["mister bell", "missus dell"],
        "caller": ["tom cooper", "john tanner"],
        "place": ["eighteen bridge street"],
        "weekday": ["wednesday", "saturday"],
        "time": ["two o'clock", "quarter past two", "half past two", "three in the afternoon"],
        "price": ["eighteen pounds"],
        "length": ["forty minutes"],
        "service": ["a short cut", "the hair wash"],
        "need": ["my long hair", "a beard trim", "some red dye", "grey curls"],
    },
    {
        "role": ["garage"],
        "who": ["mister beck", "sister hall"],
        "caller": ["don hooper", "joan turner"],
        "place": ["eighty ridge street"],
        "weekday": ["monday", "thursday"],
        "time": ["four o'clock", "quarter to four", "half past four", "five in the afternoon"],
        "price": ["eighty pounds"],
        "length": ["two hours"],
        "service": ["a car wash", "the brake check"],
        "need": ["a flat tyre", "some worn brakes", "the broken light", "our old engine"],
    },
)


def draw_sentences(count: int, rng: random.Random) -> list[str]:
    """Draw sentences from the grammar, no two alike, in random order.

    Templates with few sentences run dry on the way; the shuffle spreads theirs evenly over what is drawn, so that
    any two parts of it are alike.
    """
    places = [_complete(place) for place in PLACES]
    sentences: dict[str, None] = {}
    for _ in range(DRAWS_PER_SENTENCE * count):
        if len(sentences) == count:
            drawn = list(sentences)
            rng.shuffle(drawn)
            return drawn
        sentences[_fill(rng.choice(TEMPLATES), rng.choice(places), rng)] = None
    raise UserError(
        f"The demo grammar has too few sentences to draw {count} different ones: ask for smaller sizes."
    )


def _complete(place: Slots) -> Slots:
    """Add to the slots of a place the common ones and the dates on which it is open."""
    return {**COMMON, **place, "date": [date for weekday in place["weekday"] for date in _dates(weekday)]}


def _dates(weekday: str) -> list[str]:
    """The first such weekday of every month, as it is said."""
    dates = []
    for month, name in enumerate(MONTHS, 1):
        first = datetime.date(YEAR, month, 1).weekday()
        day = (WEEKDAYS.index(weekday) - first) % 7
        dates.append(f"{weekday} {name} {ORDINALS[day]}")
    return dates


def _fill(template: str, slots: Slots, rng: random.Random) -> str:
    """Put an option into every slot of the template."""
    return re.sub(r"{(\w+)}", lambda slot: rng.choice(slots[slot[1]]), template)
