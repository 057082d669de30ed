"""What `data.py` files are built from; tasks from outside import these names too.

A change here is a change of every task's data: cached data are built anew.
"""

from rpg_tasks.kit import textnorm
from rpg_tasks.kit.files import (
    csv_bytes,
    files_in,
    fresh_copy,
    link_or_copy,
    write_csv,
    write_file,
    write_lines,
    write_zip,
)
from rpg_tasks.kit.frames import one_hot, read_text_table, sample_like
from rpg_tasks.kit.images import Pixels, image_bytes, pixel_table, smooth_noise
from rpg_tasks.kit.randomness import hex_ids, make_rng, numbered_ids
from rpg_tasks.kit.sound import coloured_noise, sweep
from rpg_tasks.kit.splits import (
    Draw,
    Mask,
    SplitRule,
    split_rng,
    stratified_choice,
    whole_groups,
)
from rpg_tasks.kit.synthetic import Carver, Generator, SyntheticData
from rpg_tasks.kit.tables import Media, TableLayout, carve_table
from rpg_tasks.kit.words import Words, pseudo_words, sentence, token_lists, zipf_weights

__all__ = [
    "Carver",
    "Draw",
    "Generator",
    "Mask",
    "Media",
    "Pixels",
    "SplitRule",
    "SyntheticData",
    "TableLayout",
    "Words",
    "carve_table",
    "coloured_noise",
    "csv_bytes",
    "files_in",
    "fresh_copy",
    "hex_ids",
    "image_bytes",
    "link_or_copy",
    "make_rng",
    "numbered_ids",
    "one_hot",
    "pixel_table",
    "pseudo_words",
    "read_text_table",
    "sample_like",
    "sentence",
    "smooth_noise",
    "split_rng",
    "stratified_choice",
    "sweep",
    "textnorm",
    "token_lists",
    "whole_groups",
    "write_csv",
    "write_file",
    "write_lines",
    "write_zip",
    "zipf_weights",
]
