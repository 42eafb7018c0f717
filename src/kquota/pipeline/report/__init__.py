"""report.html: the page about one analysis, in one file that needs no network.

:func:`write_report` is the way in. Inside: `queries`, `timeline`, `calibration`, `what_if`, `curves` and
`recommendations` (Spark aggregates to bounded values), `model` (those values), `charts`, `agreement`, `curve_chart` and
`page` (values to HTML).
"""

from kquota.pipeline.report.writing import write_report

__all__ = ["write_report"]
