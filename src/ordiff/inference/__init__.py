"""Learning from snapshots: parameters, objective, regularisers, optimisation."""
