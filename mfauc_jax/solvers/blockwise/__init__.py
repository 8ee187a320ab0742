"""The paper's parallel algorithm: the design of the blocks, their placement on devices, visits, the solver."""
