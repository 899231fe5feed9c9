"""Titles of generated videos, by category: for display, without information beyond the category."""

from __future__ import annotations

import numpy as np

SUBJECTS = {
    "animals": "otters; a very small owl; the neighbour's cat; sheepdogs; a hedgehog; penguins; two goats; an old parrot",
    "cars": "a rusty roadster; electric vans; gearboxes; a rally car; brakes; the family estate; tyres; an engine swap",
    "comedy": "office life; awkward dinners; my landlord; bad puns; school plays; a wedding speech; small talk; the dentist",
    "cooking": "sourdough; noodle soup; roasted squash; dumplings; a week of lunches; flatbread; rice pudding; pickles",
    "crafts": "a patchwork quilt; wooden spoons; paper lanterns; a leather bag; bookbinding; clay pots; knitted socks; a kite",
    "dance": "tango; street steps; salsa turns; ballet basics; swing; folk dances; a flash mob; footwork",
    "education": "fractions; Roman roads; essay writing; tides; the periodic table; maps; chess openings; grammar",
    "fitness": "morning stretches; core strength; a first marathon; kettlebells; yoga for backs; intervals; pull-ups; balance",
    "games": "a speedrun; puzzle rooms; the final boss; city builders; retro consoles; card decks; a hidden level; co-op nights",
    "kids": "counting songs; dinosaurs; a bedtime story; shapes and colours; the alphabet; puppets; farm sounds; a treasure hunt",
    "music": "a cello suite; synth loops; street drummers; lullabies; a garage band; jazz standards; choir practice; remixes",
    "news": "the harbour vote; rail strikes; the budget; a local election; storm damage; housing; the summit; school meals",
    "reviews": "headphones; budget phones; a standing desk; rain jackets; coffee grinders; e-bikes; backpacks; cameras",
    "science": "black holes; slime moulds; glaciers; the immune system; magnets; deep-sea vents; crystals; bird migration",
    "sports": "the away goal; surf finals; a cup upset; climbing walls; the relay; table tennis rallies; extra time; a comeback",
    "travel": "night trains; a week in the alps; island ferries; old towns; desert camps; street markets; canal boats; hills",
}  # fmt: skip
FRAMES = (
    "Everything about {}", "{} for beginners", "Ten minutes of {}", "The truth about {}", "{}, explained", "A day with {}",
    "{}: what went wrong", "My first try at {}", "The best of {}", "{}, step by step", "Why we love {}", "{} at night", "Slow {}",
    "{} in winter", "Nobody told me about {}", "{} around the world",
)  # fmt: skip


def titles(category: np.ndarray, categories: tuple[str, ...], random: np.random.Generator) -> list[str]:
    """A title for each video; repeated titles get a part number."""
    result, times = [], {}
    for number in category.tolist():
        subjects = SUBJECTS[categories[number]].split("; ")
        text = FRAMES[random.integers(len(FRAMES))].format(subjects[random.integers(len(subjects))])
        text = text[0].upper() + text[1:]
        times[text] = times.get(text, 0) + 1
        result.append(text if times[text] == 1 else f"{text}, part {times[text]}")
    return result
