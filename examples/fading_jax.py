"""The tower of fading.py with derivatives by JAX: needs ``pip install "everypair[jax]"``."""

from __future__ import annotations

# [imports]
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

import everypair as ep
from everypair.jax import Differentiable
from everypair.towers import Coordinates, Embedding, Product, Rows, Sum

# [imports]
from fading import data


# [jax]
class Fading(Differentiable):
    """phi_f(previous, gap) = exp(-exp(speed_previous) gap), the same in every dimension f."""

    def __init__(self, n_dims: int) -> None:
        self.n_dims = n_dims

    def start(self, rows: Rows, normal: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
        return {"speed": np.zeros(rows.levels("previous").n)}

    def coordinates(self, p: dict[str, np.ndarray], rows: Rows) -> Iterator[Coordinates]:
        yield Coordinates("speed", slice(None), entry=rows.levels("previous").codes)

    def formula(self, p: dict[str, jnp.ndarray], rows: Rows) -> jnp.ndarray:
        decay = jnp.exp(p["speed"][rows.levels("previous").codes]) * rows.values("gap")
        return jnp.repeat(jnp.exp(-decay)[:, None], self.n_dims, axis=1)


# [jax]


def main() -> None:
    contexts, item, speed = data()
    context = Sum(Embedding(16, "user"), Product(Embedding(16, "previous"), Fading(16)))
    model = ep.Separable(context=context, item=Embedding(16), unobserved_weight=0.05, regularization=0.3, epochs=20)
    model.fit(ep.Feedback(np.arange(len(item)), item), contexts=contexts)
    correlation = np.corrcoef(model.parameters_["speed"], speed)[0, 1]
    print(f"learned speeds against the true ones: correlation {correlation:.2f}")


if __name__ == "__main__":
    main()
