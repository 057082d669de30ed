"""Plan: classify tokens by characters; spell letters and Latin words; years by parts.

Spoken numbers are assembled from pieces learnt in training: the words of a long number
are those of its thousands, hundreds and rest.
"""

import re

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

options = {"keep_default_na": False, "dtype": str}
train = pd.read_csv("input/ru_train.csv.zip", **options)
test = pd.read_csv("input/ru_test_2.csv.zip", **options)

counts = train.groupby(["before", "after"]).size().sort_values()
seen = dict(counts.index)
genitive = {"около", "более", "до"}
pairs = zip(
    train["before"].shift(1, fill_value=""),
    train["class"],
    train["before"],
    train["after"],
)
number = {"n": {}, "g": {}}
tail = {"год": {}, "года": {}, "day": {}}
letter = {}
for previous, kind, before, after in pairs:
    if kind == "CARDINAL":
        number["g" if previous in genitive else "n"][int(before)] = after
    elif kind == "DATE":
        found = re.match(r"(?:(\d+) (\S+) )?(\d{4}) (года?)$", before)
        if found:
            words = after.split()
            tail[found[4]][int(found[3]) % 100] = words[-2]
        day = re.match(r"(\d+) ([^\W\d]+)", before)
        if day and day[2] not in ("год", "года"):
            tail["day"][int(day[1])] = after.split(f" {day[2]}")[0]
    elif kind == "PLAIN" and "_trans" in after:
        letter |= dict(zip(before.lower(), after.split()))
    elif kind == "MEASURE":
        value = int(re.match(r"\d+", before)[0])
        number["n"].setdefault(value, after.rsplit(" ", 1)[0])


def spell(n, case):
    known = number[case]
    if n in known:
        return known[n]
    for base in (1000, 100, 10):
        if n > base and n % base:
            high = known.get(n // base * base)
            if high is None and base == 1000 and n < 2000:
                sample = next((v for k, v in known.items() if 1000 < k < 2000), "")
                high = sample.split()[0] if sample else None
            if high is None and base == 100:
                near = [v for k, v in known.items() if k // 100 == n // 100 and k % 100]
                high = near[0].split()[0] if near else None
            if high is None and base == 10 and n > 20:
                near = [v for k, v in known.items() if k // 10 == n // 10 and k % 10]
                high = near[0].split()[0] if near else None
            if high is not None:
                return f"{high} {spell(n % base, case)}"
    raise KeyError(n)


def spoken_year(n, form):
    rest = tail[form].get(n % 100)
    if rest is None:
        rest = f"{spell(n % 100 // 10 * 10, 'n')} {tail[form][n % 10]}"
    head = spell(n // 100 * 100, "n") if n // 100 % 10 else "две тысячи"
    if n < 2000:
        head = f"тысяча {spell(n // 100 % 10 * 100, 'n')}"
    return (
        f"{head} {rest} {form}" if " " not in rest or n % 100 > 9 else f"{head} {rest}"
    )


def speak(kind, previous, text):
    if kind == "LETTERS":
        return " ".join(text.lower())
    if kind == "CARDINAL":
        return spell(int(text), "g" if previous in genitive else "n")
    if kind == "DATE":
        found = re.match(r"(?:(\d+) (\S+) )?(\d{4}) (года?)$", text)
        if found:
            start = f"{tail['day'][int(found[1])]} {found[2]} " if found[1] else ""
            return start + spoken_year(int(found[3]), found[4])
        day, month = text.split()
        return f"{tail['day'][int(day)]} {month}"
    if kind == "MEASURE":
        n, sign = re.match(r"(\d+) ?(\S+)", text).groups()
        n = int(n)
        forms = {
            "%": "процент процента процентов",
            "км": "километр километра километров",
        }
        one, few, many = forms.get(sign, "метр метра метров").split()
        last = n % 10 if n % 100 // 10 != 1 else 0
        return f"{spell(n, 'n')} {one if last == 1 else few if last in (2, 3, 4) else many}"
    if kind == "PLAIN" and re.fullmatch("[A-Za-z]+", text):
        return " ".join(letter[c] for c in text.lower())
    raise KeyError(kind)


def describe(frame):
    previous = frame["before"].shift(1, fill_value="^")
    shape = frame["before"].str.replace(r"\d", "0", regex=True)
    return "<" + frame["before"] + "> {" + shape + "} [" + previous.str.lower() + "]"


vectorizer = TfidfVectorizer(
    analyzer="char", ngram_range=(1, 5), lowercase=False, min_df=2
)
model = LinearSVC(C=2.0).fit(vectorizer.fit_transform(describe(train)), train["class"])
kinds = model.predict(vectorizer.transform(describe(test)))
after = []
for kind, previous, text in zip(
    kinds, test["before"].shift(1, fill_value=""), test["before"], strict=False
):
    try:
        after.append(speak(kind, previous, text))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        after.append(seen.get(text, text))
out = pd.DataFrame({"id": test["sentence_id"] + "_" + test["token_id"], "after": after})
out.to_csv("submission.csv", index=False)
