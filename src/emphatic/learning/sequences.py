"""Returns, and the other sequences that define a question: cumulants, interest and importance sampling ratios.

These are the helpers that section 1 of Sutton's guide ("True online emphatic TD(λ): quick reference and
implementation guide") mentions. Index t of an argument holds what ``learn`` is given at step t: ``R[t]`` is
R_{t+1} and ``gamma_next[t]`` is γ_{t+1}. One-dimensional arrays run over time; next to a (T, K) argument, one
of length K (K ≠ T) holds one value per learner.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

from emphatic.common.names import refusal

__all__ = ["UndiscountedWarning", "interest", "returns", "rho", "terminal_cumulant", "warn_if_never_terminating", "xi"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_LARGEST = float(np.finfo(np.float64).max)


class UndiscountedWarning(UserWarning):
    """γ is 1 at every step of a log, where Πγ = 0 is needed for the outcome to be a finite sum."""


def returns(R: npt.ArrayLike, gamma_next: npt.ArrayLike, *, tolerance: float = 0.01) -> tuple[FloatArray, BoolArray]:
    """The outcome that followed each step: what the prediction there should have been, in hindsight.

        G_t = R_{t+1} + γ_{t+1} G_{t+1},   G_T = 0
        known_t = (Π_{j=t+1}^{T} γ_j ≤ tolerance)

    The log ends before the outcomes of its last steps do. What is still unseen has the weight Πγ in G_t, and
    ``known`` is True where that weight is at most ``tolerance``. γ_j = 0 makes all steps before it known.

    >>> G, known = returns([1.0, 1.0, 1.0, 5.0], [0.5, 0.5, 0.0, 0.5])
    >>> G.tolist(), known.tolist()
    ([1.75, 1.5, 1.0, 5.0], [True, True, True, False])

    Source: Sutton's guide, section 1; Sutton, Mahmood & White (2016).

    Args:
        R: The cumulants, (T,) or (T, K).
        gamma_next: The discounts, a number, (T,), (K,) or (T, K); (1, K) gives K time scales of one (T,) signal.
        tolerance: The largest weight of what is unseen with which an outcome counts as known.

    Returns:
        G and ``known``, (T,) if both arguments lack the K axis, else (T, K). Warns (``UndiscountedWarning``) if γ is 1
        at every step.
    """
    if not 0.0 <= tolerance < 1.0:  # also refuses NaN
        raise refusal("tolerance", "returns", "be at least 0 and less than 1", repr(tolerance))
    signal, discount = _real_array(R, "R", "returns"), _real_array(gamma_next, "gamma_next", "returns")
    if signal.ndim == 0:
        raise refusal("R", "returns", "be a (T,) or (T, K) array", f"the scalar {signal[()]}")
    if discount.ndim == 2 and signal.ndim == 1:
        signal = signal[:, None]
    signal, discount = _aligned("returns", R=signal, gamma_next=discount)
    T = len(signal)
    if discount.ndim == 2 and len(discount) not in (1, T):
        raise refusal("gamma_next", "returns", f"be of 1 or T = {T} rows like 'R'", f"shape {discount.shape}")
    _within(signal, "R", "returns", -_LARGEST, _LARGEST)
    _within(discount, "gamma_next", "returns", 0.0, 1.0)
    if T:
        warn_if_never_terminating(discount)
    return _backward(signal, discount, tolerance)


def terminal_cumulant(Z: npt.ArrayLike, gamma_next: npt.ArrayLike, R: npt.ArrayLike = 0.0) -> FloatArray:
    """The cumulant that pays R on the way and the terminal pseudo-reward Z upon termination.

        R_{t+1} + (1 − γ_{t+1}) Z_{t+1}

    γ = 1: R alone. γ = 0: R + Z. Between the two, 1 − γ is the probability of termination and the cumulant is
    what is then expected: with a constant Z and no R, it accumulates to exactly Z.

    >>> terminal_cumulant(10.0, [1.0, 1.0, 0.0], R=-1.0).tolist()
    [-1.0, -1.0, 9.0]

    Source: Sutton's guide, section 1; Modayil, White & Sutton (2014).

    Args:
        Z: The terminal pseudo-rewards, a number, (T,), (K,) or (T, K).
        gamma_next: The discounts, likewise.
        R: The rewards on the way, likewise.
    """
    arrays = {"Z": Z, "gamma_next": gamma_next, "R": R}
    Z, discount, R = _aligned("terminal_cumulant", **arrays)
    _within(Z, "Z", "terminal_cumulant", -_LARGEST, _LARGEST)
    _within(discount, "gamma_next", "terminal_cumulant", 0.0, 1.0)
    _within(R, "R", "terminal_cumulant", -_LARGEST, _LARGEST)
    cumulant: FloatArray = R + (1.0 - discount) * Z
    return cumulant


def interest(
    gamma_next: npt.ArrayLike, kind: Literal["every", "first", "discounted"] = "every", *, terminal_rows: bool = False
) -> FloatArray:
    """The interest I_t of each step of a log of episodes; an episode ends where ``gamma_next`` is 0.

        "every"        I_t = 1
        "first"        I_t = 1 in the first state of each episode, else 0
        "discounted"   I_t = γ_{s+1} γ_{s+2} … γ_t, where s is the episode's first step (so that I_s = 1)

    With ``terminal_rows`` the log holds the terminal state (γ = 0, φ = 0) as a row of its own after each
    γ' = 0. Nothing is predicted there: that row has interest 0, its own γ' belongs to the next start state
    and ends nothing, and the row after it starts the next episode. Without, the row after γ' = 0 does.

    A continuing log is one episode.

    >>> interest([0.9, 0.5, 0.0, 0.9, 0.0], "first").tolist()
    [1.0, 0.0, 0.0, 1.0, 0.0]
    >>> interest([0.9, 0.5, 0.0, 0.9, 0.0], "discounted").tolist()
    [1.0, 0.9, 0.45, 1.0, 0.9]
    >>> interest([0.9, 0.5, 0.0, 0.9, 0.0], terminal_rows=True).tolist()
    [1.0, 1.0, 1.0, 0.0, 1.0]

    Source: Sutton's guide, section 1 (γᵗ as suggested by Thomas, 2014); Sutton, Mahmood & White (2016).
    The guide does not give the terminal state's interest.

    Args:
        gamma_next: The discounts, (T,).
        kind: "every", "first" or "discounted".
        terminal_rows: Whether the log holds terminal states as rows.
    """
    if kind not in ("every", "first", "discounted"):
        raise refusal("kind", "interest", "be 'every', 'first' or 'discounted'", repr(kind))
    discount = _real_array(gamma_next, "gamma_next", "interest")
    if discount.ndim != 1:
        raise refusal("gamma_next", "interest", "be a (T,) array", f"shape {discount.shape}")
    _within(discount, "gamma_next", "interest", 0.0, 1.0)
    gamma = np.append(0.0, discount)[: len(discount)]  # γ_t, with γ_0 = 0: the log starts an episode
    start = gamma == 0.0
    terminal = np.zeros_like(start)
    if terminal_rows:
        # The row after a terminal row is a start, whatever its γ: of consecutive γ_t = 0 every other one is terminal.
        start[:1] = False
        t = np.arange(len(gamma))
        zeros_in_a_row = t - np.maximum.accumulate(np.where(start, -1, t))
        terminal = zeros_in_a_row % 2 == 1
        start = np.append(True, terminal)[: len(gamma)]
    if kind == "every":
        return np.where(terminal, 0.0, 1.0)
    if kind == "first":
        return np.where(start, 1.0, 0.0)
    # I_t = start_t + γ_t I_{t−1} is the recursion of the returns with time reversed.
    carried = np.where(start, 0.0, gamma)
    return _backward(np.where(start, 1.0, 0.0)[::-1], carried[::-1], 0.0)[0][::-1].copy()


def rho(pi: npt.ArrayLike, mu: npt.ArrayLike) -> FloatArray:
    """The importance sampling ratio of the action taken at each step.

        ρ_t = π(A_t|S_t) / μ(A_t|S_t)

    On-policy ρ = 1; an action that the target policy never takes has ρ = 0. An action that was taken cannot
    have had μ = 0.

    >>> rho([1.0, 0.0, 0.25], 0.5).tolist()
    [2.0, 0.0, 0.5]

    Source: Sutton's guide, section 1; Sutton, Mahmood & White (2016).

    Args:
        pi: The probability of the action under the target policy; divide densities yourself.
        mu: Its probability under the behaviour policy.
    """
    target, behaviour = _aligned("rho", pi=pi, mu=mu)
    _within(target, "pi", "rho", 0.0, 1.0)
    _within(behaviour, "mu", "rho", 0.0, 1.0)
    remedy = "Give the probability with which the behaviour policy chose it, or leave that step out."
    wanted = "greater than 0 for an action that was taken"
    _refuse_where(behaviour == 0.0, behaviour, "mu", "rho", wanted, remedy)
    with np.errstate(over="ignore"):
        ratio: FloatArray = target / behaviour
    mu_all = np.broadcast_to(behaviour, ratio.shape)
    _refuse_where(~np.isfinite(ratio), mu_all, "mu", "rho", "large enough for pi/mu to be a finite number")
    return ratio


def xi(zeta: float, pi: npt.ArrayLike, mu: npt.ArrayLike) -> float:
    """The bound ξ of ABTD(ζ) from its parameter ζ in [0, 1].

        ξ(ζ) = 2ζξ₀ + max(0, 2ζ − 1)(ξ_max − 2ξ₀)

    ξ₀ is 1 over the largest and ξ_max 1 over the least of max(π, μ), over all states and actions. ζ = 0 bootstraps
    fully, ζ = ½ gives ξ₀ and ζ = 1 gives ξ_max.

    >>> [xi(zeta, pi=[1.0, 0.0], mu=[0.5, 0.5]) for zeta in (0.0, 0.5, 1.0)]
    [0.0, 1.0, 2.0]

    Source: Mahmood, Yu & Sutton (2017), "Multi-step off-policy learning without importance sampling ratios".

    Args:
        zeta: ζ, from 0 to 1.
        pi: The target policy's probability of each action in each state.
        mu: The behaviour policy's.
    """
    if not 0.0 <= zeta <= 1.0:  # also refuses NaN
        raise refusal("zeta", "xi", "be between 0 and 1", repr(zeta))
    target, behaviour = _aligned("xi", pi=pi, mu=mu)
    _within(target, "pi", "xi", 0.0, 1.0)
    _within(behaviour, "mu", "xi", 0.0, 1.0)
    largest = np.maximum(target, behaviour)
    if not largest.size or largest.min() <= 0.0:
        raise refusal("mu", "xi", "be greater than 0 wherever 'pi' is 0", "0.0 for both")
    xi_0, xi_max = 1.0 / float(largest.max()), 1.0 / float(largest.min())
    return 2.0 * zeta * xi_0 + max(0.0, 2.0 * zeta - 1.0) * (xi_max - 2.0 * xi_0)


def warn_if_never_terminating(gamma_next: npt.ArrayLike, stacklevel: int = 3) -> None:
    """Warn if γ is 1 at every step: the condition Π_{j>t} γ_j = 0 of Sutton's guide cannot be verified.

    ``gamma_next`` is a scalar, (T,) or (T, K); discounts that differ only by learner are (1, K). The warning
    points at the line that called the function calling this one.
    """
    discount = np.asarray(gamma_next)
    never = np.atleast_1d(np.all(discount >= 1.0, axis=0))
    if discount.size and never.any():
        whose = f" for learner {int(np.argmax(never))}" if len(never) > 1 else ""
        warnings.warn(
            f"'gamma_next' never falls below 1 in this log{whose}: the outcome to be predicted is an "
            "infinite sum. Give a 'gamma_next' below 1, or 0 where an episode ends.",
            UndiscountedWarning,
            stacklevel=stacklevel,
        )


def _backward(b: FloatArray, a: FloatArray, tolerance: float) -> tuple[FloatArray, BoolArray]:
    """x_t = b_t + a_t x_{t+1} from x_T = 0, and where the weight Π a of x_T is at most ``tolerance``."""
    shape = np.broadcast_shapes(b.shape, a.shape)
    columns = shape if len(shape) == 2 else (*shape, 1)
    # Whole, contiguous and writable: one kernel is compiled, whatever was given.
    b, a = (np.require(v if v.shape == shape else np.broadcast_to(v, shape), requirements=("C", "W")) for v in (b, a))
    x, known = np.empty(shape), np.empty(shape, dtype=np.bool_)
    from emphatic.learning import sequence_kernels  # late: numba is imported on first use

    sequence_kernels.accumulate(
        b.reshape(columns), a.reshape(columns), x.reshape(columns), known.reshape(columns), float(tolerance)
    )
    return x, known


def _real_array(value: npt.ArrayLike, name: str, of: str) -> FloatArray:
    """The argument as a float64 array of at most two dimensions."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise refusal(name, of, "be numbers in one regular array", "rows of different lengths") from None
    if array.dtype.kind not in "biuf":
        raise refusal(name, of, "be real numbers", f"dtype {array.dtype}")
    if array.ndim > 2:
        raise refusal(name, of, "be a scalar, (T,), (K,) or (T, K)", f"shape {array.shape}")
    return array.astype(np.float64, copy=False)


def _aligned(of: str, **arguments: npt.ArrayLike) -> list[FloatArray]:
    """The arguments as arrays that broadcast: without the K axis or, if one has it, all with both."""
    arrays = {name: _real_array(value, name, of) for name, value in arguments.items()}
    wide = {name: array for name, array in arrays.items() if array.ndim == 2}
    lead = next(iter(wide), "") or next((name for name in arrays if arrays[name].ndim == 1), "")
    shape = arrays[lead].shape if lead else ()
    for name, array in wide.items():
        try:
            shape = np.broadcast_shapes(shape, array.shape)
        except ValueError:
            raise refusal(name, of, f"be of shape {shape} like '{lead}'", f"shape {array.shape}") from None
    for name, array in arrays.items():
        if array.ndim != 1 or array.shape == shape:
            continue
        if not wide:
            wanted, remedy = f"of length {shape[0]} like '{lead}'", "Pass (1, K) to give one value per learner."
            raise refusal(name, of, f"be {wanted}", f"length {len(array)}", remedy)
        T, K = shape
        if len(array) not in shape or T == K != 1:
            wanted = f"of length T = {T} or K = {K}" if T != K else f"two-dimensional where T = K = {T}"
            remedy = "Pass (T, 1) or (1, K) to say which it is."
            raise refusal(name, of, f"be {wanted}", f"length {len(array)}", remedy)
        arrays[name] = array[:, None] if len(array) == T else array[None, :]
    return list(arrays.values())


def _within(array: FloatArray, name: str, of: str, low: float, high: float) -> None:
    wanted = "finite" if high == _LARGEST else f"between {low:g} and {high:g}"
    _refuse_where(~((array >= low) & (array <= high)), array, name, of, wanted)  # NaN is not within anything


def _refuse_where(bad: BoolArray, array: FloatArray, name: str, of: str, wanted: str, remedy: str = "") -> None:
    if not bad.any():
        return
    at = np.unravel_index(int(np.argmax(bad)), bad.shape)
    step = f" at step {at[0]}" if bad.ndim and (bad.ndim == 1 or bad.shape[0] > 1) else ""
    learner = f" for learner {at[1]}" if bad.ndim == 2 and bad.shape[1] > 1 else ""
    raise refusal(name, of, f"be {wanted}", f"{array[at]}{step}{learner}", remedy)
