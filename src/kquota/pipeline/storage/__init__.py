"""Files by URL: folders, object stores, HDFS. Nobody else opens, lists or deletes a file of the pipeline."""
