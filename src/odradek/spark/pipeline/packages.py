"""What the executors of a cluster need of this package is sent to them by the driver.

Python's side of Spark takes it from the driver as it takes any `--py-files`: on a standalone
cluster, YARN and Kubernetes alike. What this package needs in turn is compiled (pyarrow, numba,
cramjam, google-crc32c, ptars for Protobuf) and must be installed there, in the image, or come with
`spark.archives`.
"""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.session import until_exit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship_packages(spark: "SparkSession") -> None:
    """Send this package to the executors, which may not have it installed."""
    archive = until_exit("odradek-shipped-") / "odradek.zip"
    zip_packages(archive)
    spark.sparkContext.addPyFile(str(archive))


def zip_packages(archive: Path) -> None:
    """This package, and the module by which Spark finds it."""
    import odradek
    import pyspark_odradek

    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for package in (odradek, pyspark_odradek):
            assert package.__file__ is not None
            root = Path(package.__file__).parent
            for file in sorted(root.rglob("*.py")):
                zipped.write(file, file.relative_to(root.parent))
