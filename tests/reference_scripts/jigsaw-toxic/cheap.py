"""Plan: word counts and naive Bayes, one model per label."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
out = pd.read_csv("input/sample_submission.csv")
vectorizer = CountVectorizer(min_df=2, binary=True)
x = vectorizer.fit_transform(train["comment_text"])
z = vectorizer.transform(test["comment_text"])
for label in out.columns[1:]:
    out[label] = MultinomialNB().fit(x, train[label]).predict_proba(z)[:, 1]
out.to_csv("submission.csv", index=False)
