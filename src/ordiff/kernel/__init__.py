"""Kernels from parts: an ordering, a metric, a bandwidth, a profile, composed into one formula.

    u_ij = [ |x_j − x_i|²_i / ε  −  2 Σ_k (τ_k/κ_k)(i) Δl_k(i,j)  +  ε Σ_k τ_k(i)² ] / b(i,j)
    K_ij = h(u_ij),     P_ij = K_ij q_j^−α / Σ_n K_in q_n^−α

`ordering` gives Δl, τ and κ; `metric` gives |·|_i; `bandwidth` gives b; `profile` gives h; `kernel` puts them
together; `schemes` combines several operators of one kernel (splitting, extrapolation).
"""
