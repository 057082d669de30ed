"""The continuous-time bandit study: environments, agents, simulator, theory.

``study`` runs a whole study, ``simulate`` one agent on many trials; ``registry`` says
how to add an agent or an environment; ``tables`` and ``figures`` show results;
``theory`` checks the paper's propositions.
"""
