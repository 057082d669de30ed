"""The continuous-time bandit study: environments, agents, simulator, theory."""
