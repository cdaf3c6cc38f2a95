"""Sentences about appointments: a small world a language model can learn by heart.

Every sentence is set in one place (a dentist's, a garage, ...), which has its own people, callers, room, price,
days and hours; dates follow the calendar of one year; first names go with surnames. So the words around it
mostly tell which of two words that sound alike was said: thirteen or thirty, tuesday or thursday, kent or trent.

A template is a sentence with {slots}, each of which is filled with one of its options, drawn evenly. `COMMON`
holds the slots that mean the same everywhere, `PLACES` those that depend on the place.
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
UNITS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
TEENS = ("eleven", "twelf", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
ORDINALS = (
    *UNITS,
    "tenth",
    *(f"{teen}th" for teen in TEENS),
    "twentieth",
    *(f"twenty {unit}" for unit in UNITS),
    "thirtieth",
    "thirty first",
)
COMMON: Slots = {
    "can": ["can", "could"],
    "want": ["would like to", "need to", "have to", "want to"],
    "wants": ["would like to", "needs to", "has to", "wants to"],
    "hello": ["hello", "good morning", "good afternoon"],
    "sorry": ["i'm sorry but", "i'm afraid"],
    "free": ["free", "here", "in", "away"],
}

TEMPLATES: Sequence[str] = (
    "{can} i see {who} about {need}",
    "{can} i see {who} on {date}",
    "{can} i come at {time} about {need}",
    "{can} {caller} come on {date}",
    "{can} you ask {who} for {service}",
    "i {want} see {who} on {date}",
    "i {want} see the {role} about {need}",
    "i {want} move {service} to {date}",
    "i have {service} with {who} at {time}",
    "i can't come on {date}",
    "i can't see {who} at {time}",
    "is {who} {free} on {date}",
    "is the {role} open at {time}",
    "{hello} this is {caller} about {need}",
    "{hello} this is the {role} at {place}",
    "{hello} i {want} come on {date}",
    "{caller} {wants} come on {date}",
    "{caller} {wants} see {who} about {need}",
    "{caller} {wants} see the {role} at {time}",
    "{caller} called about {need}",
    "{caller} paid {price} for {service}",
    "{caller} still owes {who} {price}",
    "{caller} is coming on {date}",
    "{sorry} {who} is away on {date}",
    "{service} at {place} costs {price}",
    "{service} takes {length} and costs {price}",
    "{who} will see {caller} at {time}",
    "{who} will see you on {date}",
    "please wait for {who} in room {room}",
    "please come to {place} at {time}",
    "please tell {caller} to come on {date}",
    "how much does {who} charge for {service}",
)

PLACES: Sequence[Slots] = (
    {
        "role": ["dentist"],
        "who": ["doctor kent", "doctor payne"],
        "caller": ["jan baker", "ken porter"],
        "place": ["thirteen mill street"],
        "room": ["thirteen"],
        "weekday": ["tuesday", "friday"],
        "time": ["nine o'clock", "quarter past nine", "nine thirty", "ten in the morning"],
        "price": ["sixty pounds"],
        "length": ["half an hour"],
        "service": ["a check up", "a new filling"],
        "need": ["a broken tooth", "a sore gum", "my wisdom teeth", "a loose filling"],
    },
    {
        "role": ["optician"],
        "who": ["doctor trent", "doctor dane"],
        "caller": ["dan barker", "jen potter"],
        "place": ["thirty hill street"],
        "room": ["thirty"],
        "weekday": ["thursday", "monday"],
        "time": ["one o'clock", "quarter past one", "one fifteen", "two in the afternoon"],
        "price": ["sixteen pounds"],
        "length": ["a quarter of an hour"],
        "service": ["a sight test", "an eye test"],
        "need": ["new glasses", "my weak eyes", "a red eye", "reading glasses"],
    },
    {
        "role": ["doctor"],
        "who": ["doctor brent", "doctor lane"],
        "caller": ["ann parker", "kim archer"],
        "place": ["fourteen park road"],
        "room": ["four"],
        "weekday": ["wednesday", "friday"],
        "time": ["eight o'clock", "quarter to eight", "eight fifteen", "nine in the morning"],
        "price": ["forty pounds"],
        "length": ["ten minutes"],
        "service": ["a flu jab", "a blood test"],
        "need": ["a bad cough", "a sore throat", "a high fever", "my weak heart"],
    },
    {
        "role": ["vet"],
        "who": ["mister reed", "mister reeve"],
        "caller": ["tim carter", "jim harper"],
        "place": ["five birch lane"],
        "room": ["five"],
        "weekday": ["tuesday", "saturday"],
        "time": ["ten o'clock", "half past ten", "ten thirty", "eleven in the morning"],
        "price": ["fifty pounds"],
        "length": ["twenty minutes"],
        "service": ["a rabies jab", "a weight check"],
        "need": ["our lame dog", "a sick cat", "my old hare", "our fat goat"],
    },
    {
        "role": ["barber"],
        "who": ["mister bell", "mister dell"],
        "caller": ["tom cooper", "john tanner"],
        "place": ["eighteen bridge street"],
        "room": ["two"],
        "weekday": ["wednesday", "saturday"],
        "time": ["two o'clock", "half past two", "two fifteen", "three in the afternoon"],
        "price": ["eighteen pounds"],
        "length": ["forty minutes"],
        "service": ["a short cut", "a hair wash"],
        "need": ["my long hair", "a beard trim", "a red hair dye", "my grey hair"],
    },
    {
        "role": ["garage"],
        "who": ["mister beck", "mister peck"],
        "caller": ["don hooper", "joan turner"],
        "place": ["eighty ridge street"],
        "room": ["eight"],
        "weekday": ["monday", "thursday"],
        "time": ["four o'clock", "quarter to four", "four thirty", "five in the afternoon"],
        "price": ["eighty pounds"],
        "length": ["two hours"],
        "service": ["a car wash", "a brake test"],
        "need": ["a flat tyre", "the weak brakes", "a broken light", "our old car"],
    },
)


def draw_sentences(count: int, rng: random.Random) -> list[str]:
    """Draw sentences from the grammar, no two alike, in random order."""
    places = [_complete(place) for place in PLACES]
    sentences: dict[str, None] = {}
    for _ in range(DRAWS_PER_SENTENCE * count):
        if len(sentences) == count:
            return list(sentences)
        sentences[_fill(rng.choice(TEMPLATES), rng.choice(places), rng)] = None
    raise UserError(
        f"The demo grammar has too few sentences to draw {count} different ones: ask for smaller sizes."
    )


def _complete(place: Slots) -> Slots:
    """Add to the slots of a place the common ones and the dates on which it is open."""
    return {**COMMON, **place, "date": [date for weekday in place["weekday"] for date in _dates(weekday)]}


def _dates(weekday: str) -> list[str]:
    """All dates of the year that fall on a weekday, as they are said."""
    days = (datetime.date(YEAR, 1, 1) + datetime.timedelta(number) for number in range(365))
    return [
        f"{weekday} {MONTHS[day.month - 1]} {ORDINALS[day.day - 1]}"
        for day in days
        if day.weekday() == WEEKDAYS.index(weekday)
    ]


def _fill(template: str, slots: Slots, rng: random.Random) -> str:
    """Put an option into every slot of the template."""
    return re.sub(r"{(\w+)}", lambda slot: rng.choice(slots[slot[1]]), template)
