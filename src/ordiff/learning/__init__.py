"""Learning from snapshots.

data          the snapshots: points, times, the start
settings      groups of settings, and all of them, checked
discretise    step, states and radius; the likelihood on them
observation   what samples see of a chain: weights of time slices and of states
slices        blocks of time slices, and what samples get from them
transition    P for one set of parameters, its products and derivatives
likelihood    value and gradient in one pass forward and one back
scores        per-sample derivatives by forward sensitivities, for the Fisher information
parameters    from coefficients to the parameters of a chain, and back
blocks        which quantities are learned, in which functions, from where
penalties     what roughness costs
smoothing     strengths of smoothness by empirical Bayes
optimise      preconditioned L-BFGS
marginal      the noise at the optimum of its marginal likelihood
fit           the stages of a fit: look, design, learn, read
result        the chain that was learned, and what is read from it
moments       four dimensions and more: particles whose moments are those of the samples
ridges        orderings of a quadratic form and functions of single directions
particles     particles of a process, their moments and sensitivities
directions    directions along which samples are not as the particles are
process       the process that was learned by moments
uncertainty   the likelihood along the noise, and resampling
"""
