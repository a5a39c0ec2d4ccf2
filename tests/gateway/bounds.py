"""Whether a quantile of ours is later than a quantile of plain visits, as far as few samples can tell.

With 50 samples the 99th percentile is the maximum, and one moment without a processor decides it. So both quantiles are
known only within an interval, and what is judged is the lower end of ours and the upper end of plain's (95 % each). The
ends are order statistics: the number of samples below the quantile has a binomial distribution, whatever the
distribution of the samples.
"""

import math

#: How sure an end of an interval is.
CONFIDENCE = 0.95


def binomial(count, trials, share):
    """The probability of at most `count` of `trials`."""
    if count < 0:
        return 0.0
    return sum(math.comb(trials, n) * share**n * (1 - share) ** (trials - n) for n in range(min(count, trials) + 1))


def lower_end(values, share):
    """A value that the quantile is not below, or None if there are too few samples to tell."""
    values = sorted(values)
    for number in range(len(values), 0, -1):
        # The quantile is at or above this one if at least `number` samples are below it.
        if 1 - binomial(number - 1, len(values), share) >= CONFIDENCE:
            return values[number - 1]
    return None


def upper_end(values, share):
    """A value that the quantile is not above. With few samples there is none in them; then it is the maximum, which is
    stricter."""
    values = sorted(values)
    for number in range(1, len(values) + 1):
        if binomial(number - 1, len(values), share) >= CONFIDENCE:
            return values[number - 1]
    return values[-1]


def is_later(ours, plain, share, allowed):
    """Whether ours are surely later than plain and `allowed`."""
    if not ours or not plain:
        return False
    least = lower_end(ours, share)
    return least is not None and least > upper_end(plain, share) + allowed


def is_more(count, trials, share):
    """Whether `count` of `trials` are surely more than this share of all."""
    return trials > 0 and 1 - binomial(count - 1, trials, share) < 1 - CONFIDENCE


def self_test():
    values = list(range(1, 51))
    assert (lower_end(values, 0.99), upper_end(values, 0.99)) == (48, 50)
    assert lower_end(values, 0.9) < 45 < upper_end(values, 0.9) < 50
    assert lower_end([5], 0.9) is None and lower_end([5], 0.99) == 5
    # One late sample of many proves nothing; five do.
    plain = [100.0] * 50
    assert not is_later([100.0] * 49 + [900.0], plain, 0.99, 20)
    assert is_later([100.0] * 45 + [900.0] * 5, plain, 0.99, 20)
    assert not is_more(1, 50, 0.01) and is_more(5, 50, 0.01) and not is_more(0, 50, 0.01)
