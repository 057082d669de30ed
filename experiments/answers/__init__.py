"""How a script is read from an answer: one form per file, found by name.

    get_form("whole-script").read(answer, parent)

Your own form: docs/parts/add_an_answer_form.md.
"""

from experiments.answers import search_replace, unified_diff, whole_script
from experiments.answers.base import (
    FORMS,
    AnswerForm,
    NoScript,
    get_form,
    register_form,
)

__all__ = ["FORMS", "AnswerForm", "NoScript", "get_form", "register_form"]

# The forms that are shipped; a new file needs its line here.
for _file in (whole_script, search_replace, unified_diff):
    register_form(_file.FORM)
