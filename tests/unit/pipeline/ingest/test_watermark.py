"""Which seconds are final, and that every charge is handed over once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kquota.pipeline.ingest.request_log.cells import Charges
from kquota.pipeline.ingest.request_log.watermark import ALLOWED_LATENESS_S, SecondWatermark, WatermarkedCharges


def charges(*seconds: int) -> Charges:
    second = np.array(seconds, np.int64)
    nothing = np.zeros(len(second), np.int64)
    return Charges(second, nothing, nothing, np.arange(len(second), dtype=float), nothing, nothing)


def ends(*seconds: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(seconds, np.float64) * 1000


def seconds_of(some: Charges) -> list[int]:
    return sorted(some.second.tolist())


def test_the_first_and_the_last_seconds_of_a_run_stay_open() -> None:
    """A neighbour may hold more of them."""
    watermarked = SecondWatermark().advance(charges(10, 11, 12, 20), ends(10.2, 11, 12, 20), has_more=False)
    assert (watermarked.final_seconds, seconds_of(watermarked.final)) == ((11, 19 - ALLOWED_LATENESS_S), [11, 12])
    assert (watermarked.open_seconds, seconds_of(watermarked.open)) == ((10, 20), [10, 20])


def test_where_the_log_goes_on_the_last_seconds_wait() -> None:
    """Between chunks that follow each other nothing stays open."""
    settling = SecondWatermark()
    first = settling.advance(charges(10, 15, 19, 20), ends(10, 15, 19, 20), has_more=True)
    assert (seconds_of(first.final), seconds_of(first.open)) == ([15], [10])
    second = settling.advance(charges(19, 20, 30), ends(20, 20, 30), has_more=True)
    assert (second.final_seconds, seconds_of(second.final)) == ((18, 27), [19, 19, 20, 20])
    assert second.open_seconds is None
    last = settling.advance(charges(), ends(), has_more=False)
    assert (seconds_of(last.final), seconds_of(last.open)) == ([], [30])


def test_what_was_recorded_too_early_for_its_line_stays_open() -> None:
    """A request that was sent for longer than the settling time belongs to a second that is final already."""
    settling = SecondWatermark()
    settling.advance(charges(10, 20), ends(10, 20), has_more=True)
    late = settling.advance(charges(12, 40), ends(40, 40), has_more=False)
    assert late.open_seconds == (12, 40)


def test_a_clock_put_back_begins_anew() -> None:
    """What was held back is let go, and the first second of the new time stays open."""
    settling = SecondWatermark()
    settling.advance(charges(100, 110, 120), ends(100, 110, 120), has_more=True)
    back = settling.advance(charges(50, 55, 60), ends(50, 55, 60), has_more=False)
    assert (back.final_seconds, seconds_of(back.final)) == ((51, 57), [55])
    assert seconds_of(back.open) == [50, 60, 120]


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=8), st.booleans()), max_size=6
    )
)
def test_every_charge_is_handed_over_once(chunks: list[tuple[list[tuple[int, int]], bool]]) -> None:
    """Whatever the clock does: nothing is lost or doubled, and final seconds are within what is said of them."""
    settling = SecondWatermark()
    given_in: list[int] = []
    out: list[int] = []
    handed: list[WatermarkedCharges] = []
    for lines, has_more in [*chunks, ([], False)]:
        given_in += [end - lag for end, lag in lines]
        watermarked = settling.advance(
            charges(*(end - lag for end, lag in lines)), ends(*(end for end, _ in lines)), has_more=has_more
        )
        handed.append(watermarked)
        out += seconds_of(watermarked.final) + seconds_of(watermarked.open)
        if watermarked.final_seconds is not None:
            assert all(
                watermarked.final_seconds[0] <= s <= watermarked.final_seconds[1] for s in seconds_of(watermarked.final)
            )
        assert (watermarked.final_seconds is None) == (not len(watermarked.final))
        assert (watermarked.open_seconds is None) == (not len(watermarked.open))
    assert sorted(out) == sorted(given_in)
