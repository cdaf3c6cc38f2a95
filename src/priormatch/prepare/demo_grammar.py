"""Sentences about appointments: a small domain that a language model can memorize.

Every sentence belongs to one place (a dentist's, a garage, ...), which has its own people, callers, months, weekdays,
hours and prices. A date is the first of its weekday in a month of one year, and no two months of a place begin on the
same weekday, so any two words of a date determine the third. Titles go with surnames, and first names with last names.
Options are phrases of several words that belong together, and similar-sounding options belong to different places, so
the rest of the sentence mostly determines which was spoken: thirteen or thirty, tuesday or thursday, kent or trent.

A template is a sentence with {slots}. A slot is filled with one of its options, drawn uniformly;
`PLACES` lists them for every place.
"""

import datetime
import random
import re
from collections.abc import Mapping, Sequence
from itertools import product

from priormatch.errors import UserError

DRAWS_PER_SENTENCE = 20
"""Draws per sentence, on average, after which the grammar counts as exhausted."""

Slots = Mapping[str, Sequence[str]]

YEAR = 2026
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")

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
    "{caller} {wants} see {who} at {time} on {date}",
    "{caller} {wants} see the {role} about {need}",
    "{caller} {wants} move {service} to {date}",
    "{caller} called on {date} about {need}",
    "{caller} paid {price} for {service} on {date}",
    "{caller} still owes {who} {price} for {service}",
    "{caller} is coming at {time} on {date}",
    "{sorry} {who} can't see {caller} on {date}",
    "{sorry} {service} costs {price} at {place}",
    "{service} takes {length} and costs {price}",
    "{who} will see {caller} at {time} on {date}",
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
        "caller": ["jan baker", "peter jones"],
        "place": ["thirteen mill street"],
        "month": ["january", "february", "april", "may", "june", "august", "september"],
        "weekday": ["monday", "tuesday", "friday"],
        "time": ["nine o'clock", "half past ten", "quarter to twelve", "one in the afternoon"],
        "hello": ["hello"],
        "sorry": ["i'm sorry but"],
        "want": ["need to"],
        "wants": ["needs to"],
        "price": ["sixty pounds"],
        "length": ["half an hour"],
        "service": ["a check up", "a new filling"],
        "need": ["a broken tooth", "a sore gum", "my wisdom teeth", "some pain"],
    },
    {
        "role": ["optician"],
        "who": ["missus dell", "doctor dane"],
        "caller": ["dan barker", "alice wood"],
        "place": ["thirty hill street"],
        "month": ["march", "may", "june", "july", "august", "october", "december"],
        "weekday": ["monday", "thursday", "saturday"],
        "time": ["one o'clock", "half past two", "quarter past four", "five in the afternoon"],
        "hello": ["good morning"],
        "sorry": ["i'm sorry but"],
        "want": ["would like to"],
        "wants": ["would like to"],
        "price": ["sixteen pounds"],
        "length": ["a quarter of an hour"],
        "service": ["a sight test", "new glasses"],
        "need": ["my weak eyes", "a red eye", "some reading glasses", "a lost lens"],
    },
    {
        "role": ["surgery"],
        "who": ["doctor brent", "sister lane"],
        "caller": ["ken porter", "lucy frost"],
        "place": ["fourteen park road"],
        "month": ["january", "may", "june", "july", "august", "september", "november"],
        "weekday": ["wednesday", "thursday", "friday"],
        "time": ["eight o'clock", "half past nine", "quarter past ten", "seven in the morning"],
        "hello": ["hello"],
        "sorry": ["i'm afraid"],
        "want": ["have to"],
        "wants": ["has to"],
        "price": ["forty pounds"],
        "length": ["ten minutes"],
        "service": ["a flu jab", "some blood tests"],
        "need": ["a bad cough", "my sore throat", "high fever", "an old scar"],
    },
    {
        "role": ["vet"],
        "who": ["mister reed", "doctor peck"],
        "caller": ["tim carter", "oliver moss"],
        "place": ["five birch lane"],
        "month": ["february", "april", "may", "june", "august", "october", "december"],
        "weekday": ["tuesday", "wednesday", "saturday"],
        "time": ["ten o'clock", "half past eleven", "quarter to nine", "eight in the morning"],
        "hello": ["good morning"],
        "sorry": ["i'm afraid"],
        "want": ["need to"],
        "wants": ["needs to"],
        "price": ["fifty pounds"],
        "length": ["twenty minutes"],
        "service": ["a rabies jab", "the weight check"],
        "need": ["our lame dog", "a sick cat", "my old hare", "the fat goat"],
    },
    {
        "role": ["barber"],
        "who": ["mister bell", "missus trent"],
        "caller": ["jen potter", "susan stone"],
        "place": ["eighteen bridge street"],
        "month": ["january", "march", "may", "june", "july", "august", "december"],
        "weekday": ["wednesday", "friday", "saturday"],
        "time": ["two o'clock", "half past three", "quarter past five", "four in the afternoon"],
        "hello": ["hello"],
        "sorry": ["i'm sorry but"],
        "want": ["would like to"],
        "wants": ["would like to"],
        "price": ["eighteen pounds"],
        "length": ["forty minutes"],
        "service": ["a short cut", "the hair wash"],
        "need": ["my long hair", "a beard trim", "some red dye", "grey curls"],
    },
    {
        "role": ["garage"],
        "who": ["mister beck", "sister hall"],
        "caller": ["jim harper", "emily hood"],
        "place": ["eighty ridge street"],
        "month": ["april", "may", "june", "august", "september", "october", "november"],
        "weekday": ["monday", "wednesday", "thursday"],
        "time": ["four o'clock", "half past one", "quarter to three", "two in the afternoon"],
        "hello": ["good morning"],
        "sorry": ["i'm afraid"],
        "want": ["have to"],
        "wants": ["has to"],
        "price": ["eighty pounds"],
        "length": ["two hours"],
        "service": ["a car wash", "the brake check"],
        "need": ["a flat tyre", "some worn brakes", "the broken light", "our old engine"],
    },
)


def draw_sentences(count: int, rng: random.Random) -> list[str]:
    """Draw different sentences from the grammar, in random order.

    Templates with few sentences run out early; the final shuffle spreads their sentences evenly, so that any two
    parts of the result have the same distribution.
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
    """Add the dates on which a place is open to its slots."""
    return {**place, "date": [_date(*both) for both in product(place["month"], place["weekday"])]}


def _date(month: str, weekday: str) -> str:
    """Return the date of the first such weekday of a month, in words."""
    begins = datetime.date(YEAR, MONTHS.index(month) + 1, 1).weekday()
    day = (WEEKDAYS.index(weekday) - begins) % 7
    return f"{weekday} {month} {ORDINALS[day]}"


def _fill(template: str, slots: Slots, rng: random.Random) -> str:
    """Fill every slot of the template with a random option."""
    return re.sub(r"{(\w+)}", lambda slot: rng.choice(slots[slot[1]]), template)
