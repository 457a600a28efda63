"""Makes strategies_jax.json: numbers of jax_privacy, for test_strategies.py.

pip install jax-privacy==2.0.0, then python strategies_jax.py
"""

import json
from pathlib import Path

if __name__ == "__main__":  # tests collect this file: nothing is computed, and jax is left as it is, when it is imported
    import jax

    jax.config.update("jax_enable_x64", True)

    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz


def banded(rounds, bands, objective):
    reduce = jnp.mean if objective == "mean" else (lambda errors: errors[-1])
    found = toeplitz.optimize_banded_toeplitz(rounds, bands, reduction_fn=reduce)
    found = found / jnp.linalg.norm(found)
    errors = toeplitz.per_query_error(strategy_coef=found, n=rounds)
    pairs = [(times, separation) for times in (1, 2, 4) for separation in (1, 3, bands) if times * separation <= rounds]
    return {
        "rounds": rounds,
        "bands": bands,
        "objective": objective,
        "coefficients": [float(each) for each in found],
        "error": float(jnp.sqrt(reduce(errors))),
        "rms_of_theirs": float(jnp.sqrt(errors.mean())),
        "sensitivities": [
            (times, separation, float(toeplitz.minsep_sensitivity_squared(found, separation, times, rounds)) ** 0.5)
            for times, separation in pairs
        ],
    }


def blt(rounds, buffers, times, separation):
    found = buffered_toeplitz.optimize(
        n=rounds, min_sep=separation, max_participations=times, error="max", min_buffers=buffers, max_buffers=buffers
    )
    coefficients = found.toeplitz_coefs(rounds)
    errors = toeplitz.per_query_error(strategy_coef=coefficients, n=rounds)
    moved = toeplitz.minsep_sensitivity_squared(coefficients, separation, times, rounds)
    return {
        "rounds": rounds,
        "buffers": buffers,
        "times": times,
        "separation": separation,
        "decays": [float(each) for each in found.buf_decay],
        "weights": [float(each) for each in found.output_scale],
        "loss": float(jnp.sqrt(moved * errors[-1])),
    }


if __name__ == "__main__":
    made = {
        "version": "jax_privacy 2.0.0",
        "banded": [
            banded(rounds, bands, objective)
            for rounds, bands in ((16, 4), (128, 16), (1024, 16), (2048, 4))
            for objective in ("mean", "max")
        ],
        "blt": [blt(128, 3, 1, 1), blt(128, 2, 8, 16), blt(2048, 3, 1, 1), blt(2048, 3, 8, 256)],
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
