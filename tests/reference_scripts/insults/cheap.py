"""Plan: bag of words and a logistic regression."""

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
vectorizer = CountVectorizer(binary=True)
x = vectorizer.fit_transform(train["Comment"])
model = LogisticRegression(max_iter=500).fit(x, train["Insult"])
test["Insult"] = model.predict_proba(vectorizer.transform(test["Comment"]))[:, 1]
test[["Insult", "Date", "Comment"]].to_csv("submission.csv", index=False)
