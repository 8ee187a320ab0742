"""The paper's parallel algorithm: the design of the blocks, where they lie, what a visit does, the solver."""
