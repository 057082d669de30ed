"""Plan: classify each token by its characters and neighbours, then speak it by rules."""

import re

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

options = {"keep_default_na": False, "dtype": str}
train = pd.read_csv("input/en_train.csv.zip", **options)
test = pd.read_csv("input/en_test_2.csv.zip", **options)

ones = "zero one two three four five six seven eight nine ten eleven twelve thirteen "
ones = (ones + "fourteen fifteen sixteen seventeen eighteen nineteen").split()
tens = [
    "_",
    "_",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]
months = "january february march april may june july august september october november"
months = (months + " december").split()
units = {"km": "kilometers", "kg": "kilograms", "m": "meters", "mm": "millimeters"}
units |= {"ft": "feet", "mph": "miles per hour", "%": "percent"}


def count(n):
    if n < 20:
        return ones[n]
    if n < 100:
        return tens[n // 10] + (" " + ones[n % 10] if n % 10 else "")
    if n < 1000:
        return ones[n // 100] + " hundred" + (" " + count(n % 100) if n % 100 else "")
    return count(n // 1000) + " thousand" + (" " + count(n % 1000) if n % 1000 else "")


def year(n):
    high, low = divmod(n, 100)
    if n % 1000 < 10:
        return count(n)
    if not low:
        return count(high) + " hundred"
    return count(high) + (" oh " if low < 10 else " ") + count(low)


def nth(n):
    odd = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
    odd |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
    *head, last = count(n).split()
    last = odd.get(last, last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join([*head, last])


def decimal(text):
    whole, _, part = text.partition(".")
    spoken = count(int(whole.replace(",", "")))
    return spoken + (" point " + " ".join(ones[int(d)] for d in part) if part else "")


def roman(text):
    total = 0
    values = [{"I": 1, "V": 5, "X": 10}[c] for c in text]
    for a, b in zip(values, [*values[1:], 0]):
        total += -a if a < b else a
    return total


def speak(kind, text):
    if kind == "LETTERS":
        return " ".join(text.lower())
    if kind == "CARDINAL":
        return count(int(text.replace(",", "")))
    if kind == "DECIMAL":
        return decimal(text)
    if kind == "ORDINAL":
        if text[0].isdigit():
            return nth(int(re.match(r"\d+", text)[0]))
        return "the " + nth(roman(text))
    if kind == "MEASURE":
        number, unit = re.match(r"([\d.,]+) ?(.+)", text).groups()
        return f"{decimal(number)} {units[unit]}"
    if kind == "MONEY":
        unit, small = ("dollars", "cents") if text[0] == "$" else ("pounds", "pence")
        if text.endswith(" million"):
            return f"{count(int(text[1:-8]))} million {unit}"
        whole, _, part = text[1:].partition(".")
        tail = f" and {count(int(part))} {small}" if part else ""
        return f"{count(int(whole))} {unit}{tail}"
    if kind == "TIME":
        hour, minute, half = re.match(r"(\d+):(\d+) (\w+)", text).groups()
        low = int(minute)
        middle = "" if not low else (" o " if low < 10 else " ") + count(low)
        return f"{count(int(hour))}{middle} {' '.join(half)}"
    if kind == "DATE":
        words = text.replace(",", "").split()
        if len(words) == 3 and words[0].isalpha():
            return f"{words[0].lower()} {nth(int(words[1]))} {year(int(words[2]))}"
        if len(words) == 3:
            return (
                f"the {nth(int(words[0]))} of {words[1].lower()} {year(int(words[2]))}"
            )
        if "-" in text:
            y, m, d = (int(v) for v in text.split("-"))
            return f"the {nth(d)} of {months[m - 1]} {year(y)}"
        return year(int(text))
    raise ValueError(kind)


def describe(frame):
    previous = frame["before"].shift(1, fill_value="^")
    shape = frame["before"].str.replace(r"\d", "0", regex=True)
    return "<" + frame["before"] + "> {" + shape + "} [" + previous.str.lower() + "]"


vectorizer = TfidfVectorizer(
    analyzer="char", ngram_range=(1, 5), lowercase=False, min_df=2
)
x = vectorizer.fit_transform(describe(train))
model = LinearSVC(C=2.0).fit(x, train["class"])
kinds = model.predict(vectorizer.transform(describe(test)))
counts = train.groupby(["before", "after"]).size().sort_values()
seen = dict(counts.index)
after = []
for kind, text in zip(kinds, test["before"]):
    try:
        after.append(speak(kind, text))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        after.append(seen.get(text, text))
out = pd.DataFrame({"id": test["sentence_id"] + "_" + test["token_id"], "after": after})
out.to_csv("submission.csv", index=False)
