"""Build hook: puts the sample capture and its quotas into the wheel as `kquota/_sample`.

A hook and not hatch's `force-include`, because that would also copy the sample into editable installs, where the
checkout's own files are used.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SampleInWheel(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":  # the other one is "editable"
            # Its quotas are those of examples/quotas.yaml; a test holds the two together.
            build_data["force_include"]["examples/capture/sample"] = "kquota/_sample"
