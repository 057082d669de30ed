"""Plan: character n-grams within words, six logistic regressions."""

import pandas as pd
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
out = pd.read_csv("input/sample_submission.csv")
char = TfidfVectorizer(
    analyzer="char_wb", ngram_range=(2, 5), min_df=2, sublinear_tf=True
)
word = TfidfVectorizer(sublinear_tf=True)
x = hstack(
    [
        char.fit_transform(train["comment_text"]),
        word.fit_transform(train["comment_text"]),
    ]
)
z = hstack([char.transform(test["comment_text"]), word.transform(test["comment_text"])])
for label in out.columns[1:]:
    model = LogisticRegression(C=8.0, solver="liblinear", class_weight="balanced")
    out[label] = model.fit(x, train[label]).predict_proba(z)[:, 1]
out.to_csv("submission.csv", index=False)
