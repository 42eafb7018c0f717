"""What a run reads and writes: tables by name, their files, the quotas that it was judged by."""
