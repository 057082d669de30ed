"""Requests for a pizza, as JSON records."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rpg_tasks.kit import (
    Draw,
    Mask,
    SplitRule,
    SyntheticData,
    Words,
    hex_ids,
    numbered_ids,
    pseudo_words,
    sample_like,
    sentence,
    stratified_choice,
    token_lists,
    write_csv,
    write_file,
    write_zip,
    zipf_weights,
)

Record = dict[str, object]

_NEED = (
    *("kids", "daughter", "job", "paycheck", "payday", "rent"),
    *("laid", "broke", "student", "exams", "tonight"),
)
_CRAVING = (
    *("party", "drunk", "craving", "bored", "weed"),
    *("lazy", "hungover", "friends", "game", "movie"),
)
# Fields whose names end so are not known at request time, or tell the outcome.
_LATE = (
    *("_at_retrieval", "requester_user_flair", "requester_received_pizza"),
    "post_was_edited",
)


@dataclass(frozen=True)
class _Draws:
    """What is drawn for all requests at once, [requests] each."""

    need: NDArray[np.int_]
    craving: NDArray[np.int_]
    image: Mask
    paid: Mask
    age: NDArray[np.float64]
    in_raop: NDArray[np.int_]
    received: Mask
    bodies: list[list[str]]
    when: NDArray[np.int_]
    votes: NDArray[np.int_]


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Requests with the 32 real fields; 17 of them exist at request time."""
    n = n_train + n_test
    words = pseudo_words(rng, 2500)
    lengths = np.clip(rng.lognormal(3.8, 0.7, n), 3, 300).astype(int)
    need, craving = rng.poisson(0.9, n), rng.poisson(0.7, n)
    image, paid = rng.random(n) < 0.12, rng.random(n) < 0.25
    age = np.round(rng.gamma(1.2, 220, n), 6)
    in_raop = rng.poisson(0.8, n)
    hour = rng.integers(0, 24, n)
    logit = (
        -2.9
        + 0.75 * need
        - 0.8 * craving
        + 0.55 * np.log(lengths / 45)
        + 0.45 * np.log1p(age / 200)
        + 0.7 * np.sqrt(in_raop)
        + 1.6 * image
        + 0.9 * paid
        + 0.4 * np.cos((hour - 20) * np.pi / 12)
    )
    received = rng.random(n) < 1 / (1 + np.exp(-1.3 * logit))
    bodies = token_lists(rng, words, zipf_weights(words.size), lengths)
    subreddits = pseudo_words(rng, 200)
    when = 1_300_000_000 + 86400 * rng.integers(0, 900, n) + 3600 * hour
    votes = rng.poisson(age / 3 + 2)
    draws = _Draws(
        need, craving, image, paid, age, in_raop, received, bodies, when, votes
    )
    names = zip(
        numbered_ids(rng, n, "t3_{:05x}", 2**20), hex_ids(rng, n, 10), strict=True
    )
    records = [
        _record(rng, i, request, user, draws, subreddits)
        for i, (request, user) in enumerate(names)
    ]
    test = stratified_choice(rng, pd.Series(received), n_test)
    train = [r for r, t in zip(records, test, strict=True) if not t]
    hidden = [r for r, t in zip(records, test, strict=True) if t]
    shown = [
        {k: v for k, v in r.items() if not k.endswith(_LATE) and k != "request_text"}
        for r in hidden
    ]
    answers = _write(train, shown, hidden, public, private)
    write_csv(
        answers.assign(requester_received_pizza=0), public / "sampleSubmission.csv"
    )


def _record(
    rng: np.random.Generator,
    i: int,
    request: str,
    user: str,
    draws: _Draws,
    subreddits: Words,
) -> Record:
    """One request; the order of the fields is the order of the draws."""
    body = draws.bodies[i] + list(rng.choice(_NEED, draws.need[i]))
    body = list(rng.permutation(body + list(rng.choice(_CRAVING, draws.craving[i]))))
    text = sentence(body) + " I will pay it forward." * int(draws.paid[i])
    text += f" http://i.imgur.com/{user[:5]}" if draws.image[i] else ""
    subs = sorted({str(s) for s in rng.choice(subreddits, rng.poisson(4) + 1)})
    age, in_raop = float(draws.age[i]), int(draws.in_raop[i])
    votes, when = int(draws.votes[i]), float(draws.when[i])
    minus = int(rng.binomial(votes, 0.6))
    later = float(np.round(rng.uniform(1, 900), 6))
    return {
        "giver_username_if_known": "N/A",
        "number_of_downvotes_of_request_at_retrieval": int(rng.poisson(2)),
        "number_of_upvotes_of_request_at_retrieval": int(rng.poisson(5)),
        "post_was_edited": bool(rng.random() < 0.1),
        "request_id": request,
        "request_number_of_comments_at_retrieval": int(rng.poisson(3)),
        "request_text": text,
        "request_text_edit_aware": text,
        "request_title": "[Request] " + sentence(body[:6], ""),
        "requester_account_age_in_days_at_request": age,
        "requester_account_age_in_days_at_retrieval": age + later,
        "requester_days_since_first_post_on_raop_at_request": 0.0,
        "requester_days_since_first_post_on_raop_at_retrieval": later,
        "requester_number_of_comments_at_request": int(rng.poisson(age / 4)),
        "requester_number_of_comments_at_retrieval": int(rng.poisson(age / 3)),
        "requester_number_of_comments_in_raop_at_request": in_raop,
        "requester_number_of_comments_in_raop_at_retrieval": in_raop + 1,
        "requester_number_of_posts_at_request": int(rng.poisson(age / 20)),
        "requester_number_of_posts_at_retrieval": int(rng.poisson(age / 15)),
        "requester_number_of_posts_on_raop_at_request": 0,
        "requester_number_of_posts_on_raop_at_retrieval": 1,
        "requester_number_of_subreddits_at_request": len(subs),
        "requester_received_pizza": bool(draws.received[i]),
        "requester_subreddits_at_request": subs,
        "requester_upvotes_minus_downvotes_at_request": minus,
        "requester_upvotes_minus_downvotes_at_retrieval": minus + 3,
        "requester_upvotes_plus_downvotes_at_request": votes,
        "requester_upvotes_plus_downvotes_at_retrieval": votes + 9,
        "requester_user_flair": None,
        "requester_username": user,
        "unix_timestamp_of_request": when,
        "unix_timestamp_of_request_utc": when - 3600,
    }


def _write(
    train: list[Record],
    shown: list[Record],
    hidden: list[Record],
    public: Path,
    private: Path,
) -> pd.DataFrame:
    """Write both JSON files, their zips and the answers, which are returned."""
    for name, rows in (("train", train), ("test", shown)):
        data = json.dumps(rows, indent=4).encode()
        write_file(public / f"{name}.json", data)
        write_zip(public / f"{name}.zip", [(f"{name}.json", data)])
    answers = pd.DataFrame(
        {
            "request_id": [r["request_id"] for r in hidden],
            "requester_received_pizza": [
                int(bool(r["requester_received_pizza"])) for r in hidden
            ],
        }
    )
    write_csv(answers, private / "test.csv")
    return answers


def carve(draw: Draw, src: Path, public: Path, private: Path) -> None:
    """Records by requester; validation rows show the test fields and no giver."""
    records = json.loads((src / "train.json").read_text("utf-8"))
    fields = list(json.loads((src / "test.json").read_text("utf-8"))[0])
    frame = pd.DataFrame(
        {
            "requester_username": [r["requester_username"] for r in records],
            "outcome": [bool(r["requester_received_pizza"]) for r in records],
        }
    )
    mask = draw.mask(frame)
    train = [r for r, held in zip(records, mask, strict=True) if not held]
    held = [records[i] for i in draw.rng.permutation(np.flatnonzero(mask))]
    # A known giver means that a pizza was given: the field is blanked where it tells.
    hidden = {"giver_username_if_known": "N/A"}
    shown = [{k: hidden.get(k, r[k]) for k in fields} for r in held]
    answers = _write(train, shown, held, public, private)
    sample = sample_like(src / "sampleSubmission.csv", answers, "request_id")
    write_csv(sample, public / "sampleSubmission.csv")


SYNTHETIC = SyntheticData(
    generate,
    small=(1500, 500),
    medium=(2878, 1162),
)
SPLIT = SplitRule(group="requester_username", stratify=("outcome",))
CARVE = carve
