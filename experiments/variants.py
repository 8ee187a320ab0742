"""What `study_top` compares: our settings, the peers' tuned ones, and what others published.

A row is either what is changed of `MFAUC()`, by the names of `MFAUC.set_params` (and `seeds`: how many fits are
averaged), or a peer.
"""

from typing import Any

from mfauc_jax import Auto, Minibatch, Weights, weightings

TITLES = {
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
    "epinions": "Epinions",
    "book-crossing": "Book Crossing",
}
ALS, WARP, OURS, AUC = "implicit ALS", "lightfm WARP", "MFAUC()", "MFAUC for AUC"
# implicit's (λ, α) and WARP's (k, epochs, and its own α where that helped): docs/derivations.md#peers
# irspack's (α₀, reg)
TUNED = {
    "ml-100k": {"als": (30.0, 4.0), "warp": (32, 40, 1e-3), "irspack": (0.3, 0.015)},
    "ml-1m": {"als": (60.0, 4.0), "warp": (64, 30), "irspack": (0.2, 0.01)},
    "epinions": {"als": (200.0, 40.0), "warp": (64, 15), "irspack": (0.03, 0.003)},
    "book-crossing": {"als": (50.0, 20.0), "warp": (64, 15), "irspack": (0.03, 0.01)},
}
FOR_AUC = {  # what docs/choosing.md recommends
    "penalty": Auto(strength=0.45, spread=3.0),
    "weights": Weights(tau=-0.15, tau_neg=-0.5),
}
BATCHES = Minibatch(batch=128)
METHODS = {
    OURS: {},
    AUC: FOR_AUC,
    ALS: {"peer": "als"},
    WARP: {"peer": "warp"},
    "our WRMF": {"peer": "wrmf"},
}
LEVERS: dict[str, dict[str, Any]] = {
    "no spread penalty": {"penalty": Auto(spread=0.0)},
    "σ halved": {"penalty": Auto(sigma=0.8)},
    "σ doubled": {"penalty": Auto(sigma=3.2)},
    "σ alike": {"penalty": Auto(sigma=5.5, sigma_power=0.0)},
    "σ ∝ M/N, as in iALS": {"penalty": Auto(sigma=0.1, sigma_power=1.0)},
    "strength × ½": {"penalty": Auto(strength=0.2)},
    "strength × 2": {"penalty": Auto(strength=0.8)},
    "λ_i alike": {"penalty": Auto(reg_user_power=0.0)},
    "λ_j alike": {"penalty": Auto(reg_item_power=0.0)},
    "users alike": {"weights": Weights(user_power=0.0)},
    "users by N^½": {"weights": Weights(user_power=0.5)},
    "users by N": {"weights": Weights(user_power=1.0)},
    "positives alike, τ = 0": {"weights": Weights(tau=0.0)},
    "rare positives, τ = −½": {"weights": Weights(tau=-0.5)},
    "popular positives, τ = ½": {"weights": Weights(tau=0.5)},
    "popular negatives, τ′ = −1": {"weights": Weights(tau_neg=-1.0)},
    "rare negatives, τ′ = 2": {"weights": Weights(tau_neg=2.0)},
    "tanh, ρ = ½": {"weighting": weightings.Tanh(rho=0.5)},
    "square hinge": {"loss": "square_hinge", "solver": BATCHES},
    "logistic": {"loss": "logistic", "solver": BATCHES},
    "k = 32": {"rank": 32},
    "k = 128": {"rank": 128},
    "k = 256": {"rank": 256},
    "20 sweeps": {"solver__iterations": 20},
    "3 seeds averaged": {"seeds": 3},
    "iALS (our WRMF)": {"peer": "wrmf"},
    "iALS, λ by frequency": {"peer": "wrmf", "reg_power": 1.0},
}
PICTURED = {"without the penalty": {"penalty": Auto(spread=0.0)}, OURS: {}}
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
BY_H = {"weights": Weights(user_power=0.5), "penalty": Auto(reg_item_power=1.0)}
GOWALLA: dict[str, dict[str, Any]] = {
    OURS: {},
    "strength .2": {"penalty": Auto(strength=0.2)},
    "A: users by N^½, λ_j by h": BY_H,
    "A, strength .3": {**BY_H, "penalty__strength": 0.3},
    "strength .1": {"penalty": Auto(strength=0.1)},
    "strength .15, τ = −.4": {"penalty": Auto(strength=0.15), "weights": Weights(tau=-0.4)},
    "strength .15, τ = −.8": {"penalty": Auto(strength=0.15), "weights": Weights(tau=-0.8)},
    "strength .15, τ = −.4, 6 sweeps": {
        "penalty": Auto(strength=0.15),
        "weights": Weights(tau=-0.4),
        "solver__iterations": 6,
    },
    "strength .1, τ = −.4, 6 sweeps": {
        "penalty": Auto(strength=0.1),
        "weights": Weights(tau=-0.4),
        "solver__iterations": 6,
    },
}
