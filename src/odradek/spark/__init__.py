"""The data pipeline on Spark, without a jar."""
