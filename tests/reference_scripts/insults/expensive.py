"""Plan: word pairs plus character n-grams; choose C by cross-validation."""

import pandas as pd
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")


def clean(text):
    return text.str.strip('"').str.replace(r"\\xa0|\\n", " ", regex=True)


word = TfidfVectorizer(ngram_range=(1, 3), sublinear_tf=True, min_df=2)
char = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 6), sublinear_tf=True)
a, b = clean(train["Comment"]), clean(test["Comment"])
x = hstack([word.fit_transform(a), char.fit_transform(a)]).tocsr()
y = train["Insult"]
best = max(
    (1.0, 3.0, 10.0, 30.0),
    key=lambda c: cross_val_score(
        LogisticRegression(C=c, solver="liblinear"), x, y, cv=4, scoring="roc_auc"
    ).mean(),
)
model = LogisticRegression(C=best, solver="liblinear").fit(x, y)
p = model.predict_proba(hstack([word.transform(b), char.transform(b)]).tocsr())
test["Insult"] = p[:, 1]
test[["Insult", "Date", "Comment"]].to_csv("submission.csv", index=False)
