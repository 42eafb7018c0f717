"""report.html: the page about one analysis, in one file that needs no network.

:func:`render_report` is the way in. Inside: `queries`, `timeline`, `calibration`, `what_if`, `curves` and
`recommendations` (Spark aggregates to bounded values), `model` (those values), `charts`, `agreement`, `curve_chart` and
`page` (values to HTML).
"""

from kquota.pipeline.report.writing import render_report

__all__ = ["render_report"]
