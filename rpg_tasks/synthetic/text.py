"""Text tasks: spooky-author, insults, jigsaw-toxic, pizza.

Words are pseudo-words, so nothing here offends; what carries the label is as in the
competitions: author habits, second-person address, correlated lexicons, narrative.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.splits import stratified_choice
from rpg_tasks.synthetic.common import (
    hex_ids,
    numbered_ids,
    one_hot,
    pseudo_words,
    sentence,
    token_lists,
    write_csv,
    write_file,
    write_zip,
    zipf_weights,
)

AUTHORS = ("EAP", "HPL", "MWS")
TOXIC = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")


def spooky_author(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Three authors: one Zipf vocabulary, each author's use of a word is tilted.

    p_a(w) proportional to zipf(w) exp(N(0, 0.5)): weak evidence in many words, which a
    linear model over counts sums up and a tree on a few features cannot.
    """
    n = n_train + n_test
    words = pseudo_words(rng, 5000)
    base = zipf_weights(words.size)
    author = rng.choice(3, n, p=(0.4035, 0.2878, 0.3087))
    texts = np.empty(n, dtype=object)
    for a, mean_log in enumerate((2.95, 3.2, 3.1)):
        p = base * np.exp(rng.normal(0, 0.5, words.size))
        rows = np.flatnonzero(author == a)
        lengths = np.clip(rng.lognormal(mean_log, 0.5, rows.size), 4, 150).astype(int)
        tokens = token_lists(rng, words, p / p.sum(), lengths)
        texts[rows] = [_with_commas(rng, t) for t in tokens]
    frame = pd.DataFrame(
        {
            "id": numbered_ids(rng, n, "id{:05d}", 30000),
            "text": texts,
            "author": np.array(AUTHORS)[author],
        }
    )
    test = stratified_choice(rng, frame["author"], n_test)
    train, hidden = frame[~test], frame[test]
    write_csv(train, public / "train.csv")
    write_csv(hidden[["id", "text"]], public / "test.csv")
    sample = hidden[["id"]].assign(EAP=0.4034935, HPL=0.2878084, MWS=0.3086981)
    write_csv(sample, public / "sample_submission.csv")
    answers = one_hot(hidden["author"].to_numpy(), AUTHORS, id=hidden["id"].to_numpy())
    write_csv(answers, private / "test.csv")


def _with_commas(rng: np.random.Generator, tokens: list[str]) -> str:
    marks = rng.random(len(tokens)) < 0.06
    return sentence([t + "," if m else t for t, m in zip(tokens, marks, strict=True)])


def insults(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Comments; an insult is a lexicon word near "you", unless it is negated.

    The same words about others, and "you are not a ...", are no insult, so single words
    give a fair score and word pairs or character n-grams a better one. Comments keep
    their literal quotes and backslash escapes, as the competition's do.
    """
    n = n_train + n_test
    words = pseudo_words(rng, 3000)
    slurs = np.array([w + "oid" for w in pseudo_words(rng, 120, (2, 2))], dtype=object)
    weights, slur_p = zipf_weights(words.size), zipf_weights(slurs.size)
    label = (rng.random(n) < 0.265).astype(int)
    lengths = np.clip(rng.lognormal(2.6, 0.7, n), 3, 120).astype(int)
    bodies = token_lists(rng, words, weights, lengths)
    aimed = [
        "you {}",
        "you are a {}",
        "your {} face",
        "you're such {}",
        "u {}",
        "you stupid {}",
    ]
    spared = [
        "you are not a {}",
        "he said {}",
        "the {} people",
        "never a {}",
        "those {}",
    ]
    comments = []
    for y, body in zip(label, bodies, strict=True):
        kind = rng.random()
        slur = str(rng.choice(slurs, p=slur_p)) + ("s" if rng.random() < 0.3 else "")
        phrase = ""
        if y and kind < 0.92:
            phrase = str(rng.choice(aimed)).format(slur)
        elif not y and kind < 0.3:
            phrase = str(rng.choice(spared)).format(slur)
        elif not y and kind < 0.55:
            phrase = "you " + str(rng.choice(words[:300]))
        elif not y and kind < 0.57:
            phrase = str(rng.choice(aimed)).format(slur)
        at = rng.integers(0, len(body) + 1)
        text = " ".join([*body[:at], *([phrase] if phrase else []), *body[at:]])
        comments.append(_as_posted(rng, text, shout=bool(y) and rng.random() < 0.15))
    comments = _distinct(comments)
    stamp = [
        f"2012{m:02d}{d:02d}{h:02d}{s // 60:02d}{s % 60:02d}Z" if known else ""
        for m, d, h, s, known in zip(
            rng.integers(1, 10, n),
            rng.integers(1, 29, n),
            rng.integers(0, 24, n),
            rng.integers(0, 3600, n),
            rng.random(n) < 0.82,
            strict=True,
        )
    ]
    frame = pd.DataFrame({"Insult": label, "Date": stamp, "Comment": comments})
    test = stratified_choice(rng, frame["Insult"], n_test)
    hidden = frame[test].copy()
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden[["Date", "Comment"]], public / "test.csv")
    write_csv(hidden.assign(Insult=0), public / "sample_submission_null.csv")
    hidden["Usage"] = np.where(rng.random(n_test) < 0.5, "PublicTest", "PrivateTest")
    write_csv(hidden, private / "test.csv")


def _as_posted(rng: np.random.Generator, text: str, shout: bool) -> str:
    """Literal outer quotes and escapes, as if dumped by a careless crawler."""
    text = text.upper() if shout else text[:1].upper() + text[1:]
    for piece, share in (
        ("\\xa0", 0.15),
        ("\\n", 0.15),
        (", ", 0.3),
        ("\\u2019s", 0.05),
    ):
        if rng.random() < share:
            text = text.replace(" ", piece, 1)
    return f'"{text}{rng.choice(["", ".", "!", "..."])}"'


def _distinct(texts: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for text in texts:
        count = seen.get(text, 0)
        seen[text] = count + 1
        out.append(text if not count else text[:-1] + "!" * count + '"')
    return out


def jigsaw_toxic(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Six correlated labels, one lexicon each; a third of the hits are disguised."""
    n = n_train + n_test
    words = pseudo_words(rng, 4000)
    toxic = rng.random(n) < 0.12
    share = {"severe_toxic": 0.22, "obscene": 0.5, "threat": 0.25}
    share |= {"insult": 0.5, "identity_hate": 0.22}
    labels = {"toxic": toxic}
    labels |= {name: toxic & (rng.random(n) < p) for name, p in share.items()}
    lengths = np.clip(rng.lognormal(3.2, 0.8, n), 4, 200).astype(int)
    bodies = token_lists(rng, words, zipf_weights(words.size), lengths)
    for name in TOXIC:
        # The seed of a lexicon is its own, so that lexicons differ in their stems.
        lexicon = np.array(
            [w + name[0] + name[-1] for w in pseudo_words(rng, 90, (2, 3))],
            dtype=object,
        )
        p = zipf_weights(lexicon.size, 0.9)
        present = labels[name]
        counts = np.where(present, 1 + rng.poisson(0.7, n), rng.random(n) < 0.03)
        for row in np.flatnonzero(counts):
            for word in rng.choice(lexicon, counts[row], p=p):
                spot = rng.integers(0, len(bodies[row]) + 1)
                bodies[row].insert(spot, _disguised(rng, str(word)))
    frame = pd.DataFrame({"id": hex_ids(rng, n, 16)})
    frame["comment_text"] = [sentence(b, rng.choice([".", "!", "\n"])) for b in bodies]
    for name in TOXIC:
        frame[name] = labels[name].astype(int)
    # Rare labels first: every column needs both classes among the scored test rows.
    rarity = frame["threat"] + 2 * frame["severe_toxic"] + 4 * frame["identity_hate"]
    test = stratified_choice(rng, rarity + 8 * frame["toxic"], n_test)
    hidden = frame[test].copy()
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden[["id", "comment_text"]], public / "test.csv")
    sample = hidden[["id"]].assign(**dict.fromkeys(TOXIC, 0.5))
    write_csv(sample, public / "sample_submission.csv")
    unscored = stratified_choice(rng, rarity[test], int(0.4 * n_test))
    hidden.loc[unscored, list(TOXIC)] = -1
    write_csv(hidden[["id", *TOXIC]], private / "test.csv")


def _disguised(rng: np.random.Generator, word: str) -> str:
    if rng.random() > 0.33:
        return word
    at = int(rng.integers(1, len(word)))
    return word[:at] + str(rng.choice(["*", word[at], "-", "."])) + word[at:]


def pizza(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Requests with the 32 real fields; 17 of them exist at request time."""
    n = n_train + n_test
    words = pseudo_words(rng, 2500)
    need = [
        "kids",
        "daughter",
        "job",
        "paycheck",
        "payday",
        "rent",
        "laid",
        "broke",
        "student",
        "exams",
        "tonight",
    ]
    craving = [
        "party",
        "drunk",
        "craving",
        "bored",
        "weed",
        "lazy",
        "hungover",
        "friends",
        "game",
        "movie",
    ]
    lengths = np.clip(rng.lognormal(3.8, 0.7, n), 3, 300).astype(int)
    n_need, n_craving = rng.poisson(0.9, n), rng.poisson(0.7, n)
    image, paid = rng.random(n) < 0.12, rng.random(n) < 0.25
    age = np.round(rng.gamma(1.2, 220, n), 6)
    in_raop = rng.poisson(0.8, n)
    hour = rng.integers(0, 24, n)
    logit = (
        -2.9
        + 0.75 * n_need
        - 0.8 * n_craving
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
    records = []
    for i, (request, user) in enumerate(
        zip(numbered_ids(rng, n, "t3_{:05x}", 2**20), hex_ids(rng, n, 10), strict=True)
    ):
        body = bodies[i] + list(rng.choice(need, n_need[i]))
        body = list(rng.permutation(body + list(rng.choice(craving, n_craving[i]))))
        text = sentence(body) + " I will pay it forward." * int(paid[i])
        text += " http://i.imgur.com/" + user[:5] * int(image[i]) if image[i] else ""
        subs = sorted({str(s) for s in rng.choice(subreddits, rng.poisson(4) + 1)})
        minus = int(rng.binomial(votes[i], 0.6))
        later = float(np.round(rng.uniform(1, 900), 6))
        records.append(
            {
                "giver_username_if_known": "N/A",
                "number_of_downvotes_of_request_at_retrieval": int(rng.poisson(2)),
                "number_of_upvotes_of_request_at_retrieval": int(rng.poisson(5)),
                "post_was_edited": bool(rng.random() < 0.1),
                "request_id": request,
                "request_number_of_comments_at_retrieval": int(rng.poisson(3)),
                "request_text": text,
                "request_text_edit_aware": text,
                "request_title": "[Request] " + sentence(body[:6], ""),
                "requester_account_age_in_days_at_request": float(age[i]),
                "requester_account_age_in_days_at_retrieval": float(age[i]) + later,
                "requester_days_since_first_post_on_raop_at_request": 0.0,
                "requester_days_since_first_post_on_raop_at_retrieval": later,
                "requester_number_of_comments_at_request": int(rng.poisson(age[i] / 4)),
                "requester_number_of_comments_at_retrieval": int(
                    rng.poisson(age[i] / 3)
                ),
                "requester_number_of_comments_in_raop_at_request": int(in_raop[i]),
                "requester_number_of_comments_in_raop_at_retrieval": int(in_raop[i])
                + 1,
                "requester_number_of_posts_at_request": int(rng.poisson(age[i] / 20)),
                "requester_number_of_posts_at_retrieval": int(rng.poisson(age[i] / 15)),
                "requester_number_of_posts_on_raop_at_request": 0,
                "requester_number_of_posts_on_raop_at_retrieval": 1,
                "requester_number_of_subreddits_at_request": len(subs),
                "requester_received_pizza": bool(received[i]),
                "requester_subreddits_at_request": subs,
                "requester_upvotes_minus_downvotes_at_request": minus,
                "requester_upvotes_minus_downvotes_at_retrieval": minus + 3,
                "requester_upvotes_plus_downvotes_at_request": int(votes[i]),
                "requester_upvotes_plus_downvotes_at_retrieval": int(votes[i]) + 9,
                "requester_user_flair": None,
                "requester_username": user,
                "unix_timestamp_of_request": float(when[i]),
                "unix_timestamp_of_request_utc": float(when[i] - 3600),
            }
        )
    test = stratified_choice(rng, pd.Series(received), n_test)
    late = ("_at_retrieval", "requester_user_flair", "requester_received_pizza")
    gone = (*late, "post_was_edited")
    train = [r for r, t in zip(records, test, strict=True) if not t]
    hidden = [r for r, t in zip(records, test, strict=True) if t]
    shown = [
        {k: v for k, v in r.items() if not k.endswith(gone) and k != "request_text"}
        for r in hidden
    ]
    for name, rows in (("train", train), ("test", shown)):
        data = json.dumps(rows, indent=4).encode()
        write_file(public / f"{name}.json", data)
        write_zip(public / f"{name}.zip", [(f"{name}.json", data)])
    answers = pd.DataFrame(
        {
            "request_id": [r["request_id"] for r in hidden],
            "requester_received_pizza": [
                int(r["requester_received_pizza"]) for r in hidden
            ],
        }
    )
    write_csv(answers, private / "test.csv")
    write_csv(
        answers.assign(requester_received_pizza=0), public / "sampleSubmission.csv"
    )
