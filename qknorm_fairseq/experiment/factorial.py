"""The 2 × 2: which arms cross two attentions with two residual norms, and what they tell apart."""

# the baseline first
FACTORIAL = ("scalenorm", "layernorm", "qknorm_scalenorm", "qknorm")

# effect -> arm -> weight of its mean score
EFFECTS: dict[str, dict[str, float]] = {
    "qknorm_at.scalenorm": {"qknorm_scalenorm": 1, "scalenorm": -1},
    "qknorm_at.layernorm": {"qknorm": 1, "layernorm": -1},
    "layernorm_at.dot": {"layernorm": 1, "scalenorm": -1},
    "layernorm_at.qknorm": {"qknorm": 1, "qknorm_scalenorm": -1},
    "interaction": {"qknorm": 1, "layernorm": -1, "qknorm_scalenorm": -1, "scalenorm": 1},
}
