"""Randomness, quantiles and intervals, as docs/results.md describes them."""
import functools
import math
import operator
import statistics


RESAMPLES = 2000
FEWEST = 5
MASK = (1 << 64) - 1


def numbers(seed):
    state = seed & MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


@functools.lru_cache(maxsize=8)
def draws(seed, sizes):
    """For each resample, the indices drawn from samples of these sizes, one sample after the other."""
    source = numbers(seed)
    return [[[next(source) * n >> 64 for _ in range(n)] for n in sizes] for _ in range(RESAMPLES)]


def student_below(x, degrees):
    """Student's t distribution: how likely it is to be below x > 0; by Simpson's rule on the angle whose tangent is x / sqrt(degrees)."""
    angle, steps = math.atan(x / math.sqrt(degrees)), 2000
    width = angle / steps
    values = [math.cos(i * width) ** (degrees - 1) for i in range(steps + 1)]
    area = width / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    return 0.5 + scale * area


@functools.lru_cache(maxsize=None)
def student(degrees):
    """What leaves 2.5 % above it of Student's t distribution."""
    low, high = 0.0, 1000.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_below(middle, degrees) < 0.975 else (low, middle)
    return high


@functools.lru_cache(maxsize=None)
def tail(n):
    degrees = max(n - 1, 1)
    return statistics.NormalDist().cdf(-student(degrees) * math.sqrt((degrees + 1) / degrees))


def quantile(ordered, q):
    at = q * (len(ordered) - 1)
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def interval(value, resampled, n, level=None):
    """Of a median, an interval reaches at most from the least to the most of n."""
    resampled.sort()
    q = tail(n)
    level = min(0.95, 1 - 0.5 ** (n - 1)) if level is None else level
    return {"value": value, "low": min(quantile(resampled, q), value), "high": max(quantile(resampled, 1 - q), value), "n": n, "level": level}


def ratio_of_sums(seed, clusters):
    """The sum of first figures over that of second ones, of clusters that are resampled whole."""
    firsts, seconds = [c[0] for c in clusters], [c[1] for c in clusters]
    total = lambda values: functools.reduce(operator.add, values, 0.0)
    if not clusters or total(seconds) == 0:
        return None
    resampled = []
    for (indices,) in draws(seed, (len(clusters),)):
        below = total(map(seconds.__getitem__, indices))
        resampled.append(total(map(firsts.__getitem__, indices)) / below if below else math.nan)
    return interval(total(firsts) / total(seconds), resampled, len(clusters), 0.95)


def joint(seed, samples, statistic):
    samples = [thinned(s) for s in samples]
    if not all(samples):
        return None
    resampled = [statistic([list(map(s.__getitem__, i)) for s, i in zip(samples, indices)])
                 for indices in draws(seed, tuple(map(len, samples)))]
    return interval(statistic(samples), resampled, min(map(len, samples)))


def joint_rounds(seed, samples, statistic):
    """Of samples by rounds that were measured together: rounds are drawn whole, the same ones for each sample."""
    rounds = [n for n in samples[0] if all(n in s for s in samples)] if samples else []
    if not rounds:
        return None
    of = lambda drawn: statistic([[v for n in drawn for v in s[n]] for s in samples])
    resampled = [of([rounds[i] for i in indices]) for (indices,) in draws(seed, (len(rounds),))]
    return interval(of(rounds), resampled, len(rounds))


def unlogged(found):
    return {name: value if name in ("n", "level") else math.exp(value) for name, value in found.items()}


def paired(seed, a, b):
    """The ratio of two samples by their rounds, pair by pair, as logarithms."""
    rounds = [n for n in sorted(a) if n in b]
    if not rounds or any(a[n] <= 0 or b[n] <= 0 for n in rounds):
        return None
    return unlogged(joint(seed, [[math.log(a[n] / b[n]) for n in rounds]], lambda drawn: statistics.median(drawn[0])))


def paired_or_not(seed, a, b):
    """The same, and the ratio of medians where fewer than five rounds have both."""
    if sum(n in b for n in a) >= FEWEST:
        return paired(seed, a, b)
    a, b = ([s[n] for n in sorted(s)] for s in (a, b))
    if not a or not b or min(a) <= 0 or min(b) <= 0:
        return None
    log = lambda values: math.log(statistics.median(values))
    return unlogged(joint(seed, [a, b], lambda drawn: log(drawn[0]) - log(drawn[1])))


def thinned(values):
    return values[::max(-(-len(values) // 2000), 1)]
