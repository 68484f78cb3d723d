"""Learning from snapshots.

seen          what was seen: points, times, the start
learn         the stages of a fit: look, design, learn, read
blocks        which quantities are learned, in which functions, from where
parameters    from coefficients to the parameters of a chain, and back
objective     the likelihood and its gradient in one pass forward and one back
chain, records, times, sensitivity    its parts: P, what samples see of it, when, and the scores
regularise    what roughness costs
optimise      L-BFGS, strengths of smoothness, marginal likelihood
fitted        the result
"""
