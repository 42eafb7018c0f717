"""Plain ``DataFrame -> DataFrame`` functions over the tables of :mod:`kquota.pipeline.dataset.tables`."""
