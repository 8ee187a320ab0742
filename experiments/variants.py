"""What `study_top` compares: our settings, the peers' tuned ones, and what others published.

A lever that sets a constant of `scaling.rule` is written `rule.name`.
"""

from typing import Any

TITLES = {
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
    "epinions": "Epinions",
    "book-crossing": "Book Crossing",
}
ALS, WARP, OURS, AUC = "implicit ALS", "lightfm WARP", "MFAUC()", "MFAUC for AUC"
# implicit's (λ, α) and WARP's (k, epochs, and its own α where that helped)
PEERS = {
    "ml-100k": {"als": (30.0, 4.0), "warp": (32, 40, 1e-3)},
    "ml-1m": {"als": (60.0, 4.0), "warp": (64, 30)},
    "epinions": {"als": (200.0, 40.0), "warp": (64, 15)},
    "book-crossing": {"als": (50.0, 20.0), "warp": (64, 15)},
}
FOR_AUC = {
    "spread": 3.0,
    "strength": 0.45,
    "tau": -0.15,
    "tau_neg": -0.5,
}  # what docs/choosing.md recommends
METHODS = {
    OURS: {},
    AUC: FOR_AUC,
    ALS: {"peer": "als"},
    WARP: {"peer": "warp"},
    "our WRMF": {"peer": "wrmf"},
}
LEVERS: dict[str, dict[str, Any]] = {
    "no spread penalty": {"spread": 0.0},
    "σ halved": {"rule.spread": 0.8},
    "σ doubled": {"rule.spread": 3.2},
    "σ alike": {"rule.spread": 5.5, "rule.spread_power": 0.0},
    "σ ∝ M/N, as in iALS": {"rule.spread": 0.1, "rule.spread_power": 1.0},
    "strength × ½": {"strength": 0.2},
    "strength × 2": {"strength": 0.8},
    "λ_i alike": {"rule.user_power": 0.0},
    "λ_j alike": {"rule.item_power": 0.0},
    "users alike": {"user_power": 0.0},
    "users by N^½": {"user_power": 0.5},
    "users by N": {"user_power": 1.0},
    "positives alike, τ = 0": {"tau": 0.0},
    "rare positives, τ = −½": {"tau": -0.5},
    "popular positives, τ = ½": {"tau": 0.5},
    "popular negatives, τ′ = −1": {"tau_neg": -1.0},
    "rare negatives, τ′ = 2": {"tau_neg": 2.0},
    "tanh, ρ = ½": {"weighting": "tanh", "rho": 0.5},
    "square hinge": {"loss": "square_hinge"},
    "logistic": {"loss": "logistic"},
    "k = 32": {"rank": 32},
    "k = 128": {"rank": 128},
    "k = 256": {"rank": 256},
    "20 sweeps": {"iterations": 20},
    "3 seeds averaged": {"seeds": 3},
    "iALS (our WRMF)": {"peer": "wrmf"},
    "iALS, λ by frequency": {"peer": "wrmf", "reg_power": 1.0},
}
PICTURED = {"without the penalty": {"spread": 0.0}, OURS: {}}
# default: AUC at least; AUC alone: at least; p@5 strictly above ALS, or not below
TARGETS = {
    "ml-100k": (0.0, 0.929, True),
    "ml-1m": (0.943, 0.945, True),
    "epinions": (0.86, 0.88, False),
    "book-crossing": (0.86, 0.875, False),
}
PUBLISHED = {
    "MF-BPR": (0.1627, 0.1378),
    "EASE": (0.1765, 0.1467),
    "LightGCN": (0.1820, 0.1547),
    "MF-CCL": (0.1837, 0.1493),
}  # Gowalla, Recall@20 and NDCG@20
GOWALLA: dict[str, dict[str, Any]] = {
    OURS: {},
    "strength .2": {"strength": 0.2},
    "A: users by N^½, λ_j by h": {"user_power": 0.5, "rule.item_power": 1.0},
    "A, strength .3": {"user_power": 0.5, "rule.item_power": 1.0, "strength": 0.3},
    "strength .1": {"strength": 0.1},
    "strength .15, τ = −.4": {"strength": 0.15, "tau": -0.4},
    "strength .15, τ = −.8": {"strength": 0.15, "tau": -0.8},
    "strength .15, τ = −.4, 6 sweeps": {"strength": 0.15, "tau": -0.4, "iterations": 6},
    "strength .1, τ = −.4, 6 sweeps": {"strength": 0.1, "tau": -0.4, "iterations": 6},
}
