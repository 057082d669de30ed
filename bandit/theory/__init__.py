"""The paper's propositions for the bandit as executable checks.

Each check draws random problems, measures, and returns ``Check`` rows that say what
was required; ``report`` runs them all, writes ``theory.csv`` and a figure (PNG, PDF),
and says which held. Iterations are the library's own (float32); statements about rates
over thousands of steps are evaluated in float64 with NumPy.
"""

from bandit.theory.iteration import (
    GAMMAS,
    check_band,
    check_termination,
    edge_problem,
)
from bandit.theory.npg import (
    boltzmann_error,
    check_boltzmann,
    check_rate,
    fitted_slopes,
    run_rates,
)
from bandit.theory.problems import Check, Problems, exact_rates, random_problems
from bandit.theory.summary import Curves, draw, report, run
from bandit.theory.sums import check_rate_of_sums, rate_of_sums

__all__ = [
    "GAMMAS",
    "Check",
    "Curves",
    "Problems",
    "boltzmann_error",
    "check_band",
    "check_boltzmann",
    "check_rate",
    "check_rate_of_sums",
    "check_termination",
    "draw",
    "edge_problem",
    "exact_rates",
    "fitted_slopes",
    "random_problems",
    "rate_of_sums",
    "report",
    "run",
    "run_rates",
]
