"""AdamW and LAMB in NumPy."""

import numpy as np

RULES = {
    "learning_rate": 0.02,
    "beta_1": 0.8,
    "beta_2": 0.95,
    "epsilon": 1e-3,
    "weight_decay_rate": 0.1,
}


def numpy_steps(
    weight, gradients, *, decays, adapts, bias_correction, rules=RULES
):
    """Yields weight and trust ratio of each update, in double precision."""
    w = weight.astype("float64")
    m = v = np.zeros_like(w)
    b1, b2 = rules["beta_1"], rules["beta_2"]
    if bias_correction:
        b1, b2 = float(np.float32(b1)), float(np.float32(b2))
    for t, g in enumerate(gradients.astype("float64"), 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        scales = (1 - b1**t, 1 - b2**t) if bias_correction else (1, 1)
        u = m / scales[0] / (np.sqrt(v / scales[1]) + rules["epsilon"])
        if decays:
            u = u + rules["weight_decay_rate"] * w
        ratio = 1.0
        norms = np.sqrt((w**2).sum()), np.sqrt((u**2).sum())
        if adapts and min(norms) > 0:
            ratio = norms[0] / norms[1]
        w = w - rules["learning_rate"] * ratio * u
        yield w, ratio
