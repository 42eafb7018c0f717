"""report.html: the page about one analysis, in one file that needs no network.

:func:`.page.render_report` is the way in. Inside: `queries`, `clients`, `timeline` and `advice` (Spark aggregates to
bounded rows), `contents` (what the page shows), `summary` and `wording` (its words), `charts`, `calibration_chart` and
`curve_chart` (drawings), `page` (HTML).
"""
