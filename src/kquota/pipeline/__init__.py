"""The Spark side: from request logs and quotas to who is limited by what.

Importing this package is free; its modules load Spark, Arrow and pandas when they are imported.
"""
