"""How long the replies were, and how many of them the limit ended."""

from collections.abc import Sequence

from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.steps import LENGTH_FINISHES, completion_tokens
from speedstudy.records import TurnRecord


def output_length(turns: Sequence[TurnRecord]) -> dict[str, float | None]:
    """Return the mean completion tokens of the ``ok`` requests and the share cut by the limit.

    The share is over the requests whose engine gave a finish reason.
    """
    ok = [turn for turn in turns if turn.outcome == "ok"]
    reasons = [turn.finish_reason for turn in ok if turn.finish_reason is not None]
    capped = sum(reason in LENGTH_FINISHES for reason in reasons)
    return {
        "mean_tokens": mean([completion_tokens(turn) for turn in ok]),
        "capped_share": divide(capped, len(reasons)),
    }
