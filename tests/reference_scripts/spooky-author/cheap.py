"""Plan: word counts and a logistic regression, one fit."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
vectorizer = CountVectorizer()
x = vectorizer.fit_transform(train["text"])
model = LogisticRegression(C=0.3, max_iter=300).fit(x, train["author"])
p = model.predict_proba(vectorizer.transform(test["text"]))
out = pd.DataFrame(p, columns=model.classes_)
out.insert(0, "id", test["id"])
out.to_csv("submission.csv", index=False)
