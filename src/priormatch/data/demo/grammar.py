"""Sentences about appointments: a small world a language model can learn by heart.

Every sentence is set in one place (a dentist's, a garage, ...), which has its own people, room, prices, days
and hours; dates follow the calendar of one year; first names go with surnames. So the words around it often
tell which of two words that sound alike was said: thirteen or thirty, tuesday or thursday, kent or trent.

A template is a sentence with {slots}. A slot is filled with one of its options, drawn evenly, which may have
slots too; a slot that occurs twice takes two different options where it has them. `COMMON` holds the slots
that mean the same everywhere, `PLACES` those that depend on the place.
"""

import datetime
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from priormatch.errors import UserError

DRAWS_PER_SENTENCE = 20
"""How many draws a sentence may cost on average before the grammar counts as exhausted."""

Slots = Mapping[str, Sequence[str]]

YEAR = 2026
MONTHS = {3: "march", 5: "may", 6: "june", 7: "july", 9: "september", 11: "november", 12: "december"}
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
HOURS = {"morning": ["eight", "nine", "ten", "eleven"], "afternoon": ["one", "two", "three", "four", "five"]}

COMMON: Slots = {
    "time": [
        "{hour} o'clock",
        "{hour} in the {half}",
        "half past {hour}",
        "quarter past {hour}",
        "quarter to {hour}",
        "{hour} fifteen",
        "{hour} thirty",
    ],
    "caller": [
        "jan baker",
        "dan barker",
        "ann parker",
        "ken porter",
        "jen potter",
        "tim carter",
        "kim archer",
        "jim harper",
        "tom cooper",
        "don hooper",
    ],
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
    "{can} i come on {date}",
    "{can} you ask {who} for {service}",
    "i {want} see {who} on {date}",
    "i {want} see the {role} about {need}",
    "i have {service} on {date}",
    "i {want} come about {need} at {time}",
    "i can't come on {date}",
    "i can't see {who} at {time}",
    "is {who} {free} on {date}",
    "is the {role} open at {time}",
    "{hello} this is {caller} about {need}",
    "{hello} this is the {role} at {place}",
    "{caller} {wants} see {who} on {weekday}",
    "{caller} {wants} come on {date}",
    "{caller} {wants} see the {role} at {time}",
    "{caller} called about {need}",
    "{caller} paid {price} for {service}",
    "{caller} still owes {who} {price}",
    "{caller} is coming on {date}",
    "{caller} is coming about {need} at {time}",
    "{sorry} {who} is away on {weekday}",
    "{sorry} the {role} is closed on {closed}",
    "{service} at {place} costs {price}",
    "{service} takes {length}",
    "{who} will see {caller} at {time}",
    "{who} will see you on {date}",
    "we will see you on {date}",
    "please wait for {who} in room {room}",
    "please come to {place} at {time}",
    "please tell {caller} to come on {date}",
    "how long is {service} with {who}",
    "how much does {who} charge for {service}",
)

PLACES: Sequence[Slots] = (
    {
        "role": ["dentist"],
        "who": ["doctor kent", "doctor payne"],
        "place": ["thirteen mill street"],
        "room": ["thirteen"],
        "weekday": ["tuesday", "friday"],
        "half": ["morning"],
        "price": ["sixty pounds"],
        "length": ["half an hour"],
        "service": ["a check up", "a new filling"],
        "need": ["a broken tooth", "a sore gum", "my wisdom teeth", "a loose filling"],
    },
    {
        "role": ["optician"],
        "who": ["doctor trent", "doctor dane"],
        "place": ["thirty hill street"],
        "room": ["thirty"],
        "weekday": ["thursday", "monday"],
        "half": ["afternoon"],
        "price": ["sixteen pounds"],
        "length": ["a quarter of an hour"],
        "service": ["a sight test", "an eye test"],
        "need": ["new glasses", "my weak eyes", "a red eye", "reading glasses"],
    },
    {
        "role": ["doctor"],
        "who": ["doctor brent", "doctor lane"],
        "place": ["fourteen park road"],
        "room": ["four"],
        "weekday": ["monday", "wednesday", "friday"],
        "half": ["morning"],
        "price": ["forty pounds"],
        "length": ["ten minutes"],
        "service": ["a flu jab", "a blood test"],
        "need": ["a bad cough", "a sore throat", "a high fever", "my weak heart"],
    },
    {
        "role": ["vet"],
        "who": ["mister reed", "mister reeve"],
        "place": ["five birch lane"],
        "room": ["one"],
        "weekday": ["monday", "tuesday", "saturday"],
        "half": ["morning"],
        "price": ["fifty pounds"],
        "length": ["twenty minutes"],
        "service": ["a rabies jab", "a weight check"],
        "need": ["our lame dog", "a sick cat", "my old hare", "our fat goat"],
    },
    {
        "role": ["barber"],
        "who": ["mister bell", "mister dell"],
        "place": ["eighteen bridge street"],
        "room": ["two"],
        "weekday": ["wednesday", "saturday"],
        "half": ["afternoon"],
        "price": ["eighteen pounds"],
        "length": ["forty minutes"],
        "service": ["a short cut", "a hair wash"],
        "need": ["my long hair", "a beard trim", "a red hair dye", "my grey hair"],
    },
    {
        "role": ["garage"],
        "who": ["mister beck", "mister peck"],
        "place": ["eighty ridge street"],
        "room": ["eight"],
        "weekday": ["monday", "thursday", "friday"],
        "half": ["afternoon"],
        "price": ["eighty pounds"],
        "length": ["two hours"],
        "service": ["a car wash", "a brake test"],
        "need": ["a flat tyre", "the weak brakes", "a broken light", "our old car"],
    },
    {
        "role": ["bank"],
        "who": ["missus hill", "missus hall"],
        "place": ["seventeen market square"],
        "room": ["seventeen"],
        "weekday": ["tuesday", "thursday"],
        "half": ["morning"],
        "price": ["seven pounds"],
        "length": ["half an hour"],
        "service": ["a money talk", "a loan check"],
        "need": ["a lost card", "a house loan", "our savings", "a late payment"],
    },
)


def draw_sentences(count: int, rng: random.Random) -> list[str]:
    """Draw sentences from the grammar, no two alike, in random order."""
    places = [_complete(place) for place in PLACES]
    sentences: dict[str, None] = {}
    for _ in range(DRAWS_PER_SENTENCE * count):
        if len(sentences) == count:
            return list(sentences)
        sentences[_fill(rng.choice(TEMPLATES), rng.choice(places), rng, defaultdict(set))] = None
    raise UserError(
        f"The demo grammar has too few sentences to draw {count} different ones: ask for smaller sizes."
    )


def _complete(place: Slots) -> Slots:
    """Add to the slots of a place those that follow from its opening days and hours."""
    (half,) = place["half"]
    return {
        **COMMON,
        **place,
        "hour": HOURS[half],
        "date": [date for weekday in place["weekday"] for date in _dates(weekday)],
        "closed": [weekday for weekday in WEEKDAYS if weekday not in place["weekday"]],
    }


def _dates(weekday: str) -> list[str]:
    """All dates of the year that fall on a weekday, as they are said."""
    days = (datetime.date(YEAR, 1, 1) + datetime.timedelta(number) for number in range(365))
    said = []
    for day in days:
        if day.month in MONTHS and day.weekday() == WEEKDAYS.index(weekday):
            ordinal, month = ORDINALS[day.day - 1], MONTHS[day.month]
            said += [f"{weekday} {month} {ordinal}", f"the {ordinal} of {month}"]
    return said


def _fill(template: str, slots: Slots, rng: random.Random, used: defaultdict[str, set[str]]) -> str:
    """Put an option into every slot of the template, and into the slots of the options."""

    def option(match: re.Match[str]) -> str:
        name = match[1]
        fresh = [choice for choice in slots[name] if choice not in used[name]] or slots[name]
        chosen = rng.choice(fresh)
        used[name].add(chosen)
        return _fill(chosen, slots, rng, used)

    return re.sub(r"{(\w+)}", option, template)
